"""Checks of chapter 05: a cache of the student's own, and what the next forward sees after a rollback.

The reference is always a forward without any cache history. Slots that were rolled back are filled with NaN by the check, so that
a forward which reads one of them cannot give the right logits by luck.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from autograder.checks.caches import (
    SLOTS,
    Form,
    has_moved,
    length_of,
    method,
    new_cache,
    place,
    poison,
    read,
    read_copies,
    storage,
    unchanged,
)
from autograder.checks.core import Result, Wrong, call, register
from autograder.checks.rollback_mistakes import EMITTED, KEPT, Verification, named, verifications
from autograder.checks.rounds import CLOSE, Counted, first_wrong_slot, other_slots, speculate, tokens_of
from autograder.checks.tiny import TinyAttention, device, prefill

OTHER = Form(heads=3, slots=9, head_dim=5, dtype=torch.float32)


def _random_kv(seed: int, count: int, form: Form = Form()) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    k, v = torch.randn((2, form.heads, count, form.head_dim), generator=generator, dtype=form.dtype).to(device())
    return k, v


def _raises_value_error(action: Callable, *args: Any, what: str, hint: str) -> None:
    try:
        call(action, *args)
    except Wrong as wrong:
        if isinstance(wrong.raised, ValueError):
            return
        if wrong.raised is None:  # nothing of theirs: no plain data came, or nobody is there any more
            raise
        found = wrong.result
        if "AssertionError" in found.message:
            hint = "An assert raises AssertionError, and python -O leaves it out: `if …: raise ValueError(…)`."
        raised = found.message.splitlines()[0]
        raise Wrong(f"{what}: {raised}, not ValueError", "ValueError", found.got, hint) from None
    raise Wrong(f"{what} raises nothing", "ValueError", "no exception", hint)


# -- append and read ---------------------------------------------------------------------------------------------------

PIECES = (7, 1, 4)  # slots of each append


@register("05.append")
def append(kind: Callable, seed: int) -> Result:
    """Appended slots come back in order, as views of tensors that stay where they are; a full cache refuses before it writes."""
    cache, neighbour = new_cache(kind), new_cache(kind)
    place(cache)
    pieces = [_random_kv(seed * 100 + i, n) for i, n in enumerate(PIECES)]
    beside = _random_kv(seed * 100 + len(PIECES), 5)
    call(method(neighbour, "append"), *beside, what="append of 5 slots")
    if length_of(cache) != 0:
        raise Wrong("two caches share their length", "the other cache stays empty", f"length {length_of(cache)}", _OWN)
    for k, v in pieces:
        call(method(cache, "append"), k, v, what=f"append of {k.shape[1]} slots")
    if has_moved(cache):
        raise Wrong(
            "append allocates new tensors", "keys and values stay where they are", "their addresses changed",
            "Write into a slice, self.keys[:, start:end] = k. torch.cat makes a new tensor each time.",
        )  # fmt: skip
    if length_of(cache) != sum(PIECES):
        raise Wrong("append does not count its slots", "length 12 after 7 + 1 + 4", str(length_of(cache)), "T is k.shape[1].")
    _check_content(cache, pieces)
    if not all(torch.equal(*pair) for pair in zip(read(neighbour), beside)):
        raise Wrong("two caches share their tensors", "what was appended to one stays as it is", "an append to the other changed it", _OWN)
    if read_copies(cache):
        raise Wrong("read() copies", "views of the preallocated tensors", "new tensors", "A slice is a view; clone() and cat() copy.")
    _check_overflow(cache, seed)
    _check_other_form(kind, seed)
    message = f"12 slots in three pieces, read back as views; three caches at once; a full one refuses and stays as it is ({device()})"
    return Result(True, message)


_OWN = "Allocate in __init__, into self: what the class or a function outside holds is there once for all caches."


def _check_content(cache: Any, pieces: list[tuple[Tensor, Tensor]]) -> None:
    keys, values = read(cache)
    right_keys, right_values = (torch.cat([piece[i] for piece in pieces], dim=1) for i in (0, 1))
    if torch.equal(keys, right_values) and torch.equal(values, right_keys):
        raise Wrong("keys and values are exchanged", "read() returns (keys, values)", "(values, keys)")
    if torch.equal(keys, values):
        raise Wrong("keys and values are the same", "two tensors, k in one and v in the other", "one content in both",
                    "`self.keys = self.values = …` is one tensor with two names. Allocate two, for k and for v.")  # fmt: skip
    for i, (name, found, right) in enumerate((("keys", keys, right_keys), ("values", values, right_values))):
        if not torch.equal(found, right):
            slot = int((found != right).any(-1).any(0).nonzero()[0])
            why, hint = _why_changed(storage(cache)[i], [piece[i] for piece in pieces])
            raise Wrong(f"{name} come back changed{why}", f"slot {slot} as it was appended", "something else", hint)


def _why_changed(tensor: Tensor, parts: list[Tensor]) -> tuple[str, str]:
    ends = [sum(PIECES[: i + 1]) for i in range(len(PIECES))]

    def holds(starts: Sequence[int], *which: int) -> bool:
        return all(torch.equal(tensor[:, starts[i] : starts[i] + PIECES[i]], parts[i]) for i in which)

    if holds([0, 0, 0], 2):
        return ": every append begins at slot 0", "New slots go behind the last one in use, from self.length on."
    if holds(ends, 2):
        return ": length is raised before the slots are written", "Write first, at self.length, and count then."
    if holds([5, 4, 0], 0, 1, 2):
        return ": new slots are put in front of the others", "New slots go behind the last one in use, from self.length on."
    return "", "New slots go behind the last one in use, from self.length on."


def _check_overflow(cache: Any, seed: int) -> None:
    before = [tensor.clone() for tensor in storage(cache)]
    hint = "Compare self.length + T with max_length first, and raise ValueError before you write."
    add = method(cache, "append")
    _raises_value_error(add, *_random_kv(seed, SLOTS - 11), what="append of one slot too many", hint=hint)
    if not unchanged(cache, before) or length_of(cache) != 12:
        raise Wrong("a full cache writes before it raises", "keys, values and length as before", "they changed", hint)
    try:
        call(add, *_random_kv(seed, SLOTS - 12), what=f"append up to slot {SLOTS} of {SLOTS}")
    except Wrong as wrong:
        if isinstance(wrong.raised, ValueError):
            raise Wrong("the last slot cannot be used", f"{SLOTS} slots fit", wrong.result.message, "Raise only above it.") from None
        raise
    if length_of(cache) != SLOTS:
        raise Wrong("a full cache has the wrong length", f"length {SLOTS}", str(length_of(cache)))


def _check_other_form(kind: Callable, seed: int) -> None:
    """Other heads, max_length, head_dim and dtype."""
    cache, pieces = new_cache(kind, OTHER), [_random_kv(seed * 100 + 50 + n, n, OTHER) for n in (4, 2)]
    for piece in pieces:
        call(method(cache, "append"), *piece, what=f"append to a cache of {OTHER.heads} heads")
    for i, found in enumerate(read(cache, OTHER)):
        if not torch.equal(found, torch.cat([piece[i] for piece in pieces], dim=1)):
            raise Wrong("a cache of another form comes back changed", f"as with {Form()}", f"something else with {OTHER}",
                        "Take heads, max_length, head_dim and dtype as they are given.")  # fmt: skip


# -- rollback ----------------------------------------------------------------------------------------------------------


@register("05.rollback")
def rollback(kind: Callable, seed: int) -> Result:
    """rollback(n) leaves n slots in use and touches no tensor; the next append overwrites what was dropped."""
    draw = random.Random(f"rollback {seed}")
    for keep in (5, draw.randint(2, 7), 8, 0):
        cache = new_cache(kind)
        call(method(cache, "append"), *_random_kv(seed, 8), what="append of 8 slots")
        place(cache)
        before = [tensor.clone() for tensor in storage(cache)]
        call(method(cache, "rollback"), keep, what=f"rollback({keep}) of 8 slots")
        _check_length(length_of(cache), keep)
        if has_moved(cache):
            raise Wrong("rollback allocates new tensors", "keys and values stay where they are", "their addresses changed", _O1)
        if not unchanged(cache, before):
            raise Wrong("rollback writes to the tensors", "keys and values unchanged", "some slots changed", _O1)
        poison(cache)
        new = _random_kv(seed + 1, 3)
        call(method(cache, "append"), *new, what="append after a rollback")
        for found, old, fresh in zip(read(cache), before, new):
            if not torch.equal(found, torch.cat([old[:, :keep], fresh], dim=1)):
                raise Wrong("after a rollback, append writes to the wrong slots", f"the first {keep} slots, then the 3 new ones",
                            "something else", "append begins at self.length.")  # fmt: skip
    cache = new_cache(kind)
    call(method(cache, "append"), *_random_kv(seed, 4), what="append of 4 slots")
    for bad in (5, -1):
        _raises_value_error(method(cache, "rollback"), bad, what=f"rollback({bad}) of a cache with 4 slots",
                            hint="Allow 0 <= length <= self.length.")  # fmt: skip
    _check_refilled(cache, seed)
    return Result(True, "4 rollbacks changed a number and no tensor, and dropped slots were overwritten")


def _check_refilled(cache: Any, seed: int) -> None:
    """Again and again: the slots that were dropped are free, however often they were used before."""
    for _ in range(3):
        call(method(cache, "rollback"), 1, what=f"rollback(1) of {length_of(cache)} slots")
        try:
            call(method(cache, "append"), *_random_kv(seed, SLOTS - 1), what=f"append of {SLOTS - 1} slots after rollback(1)")
        except Wrong as wrong:
            if isinstance(wrong.raised, ValueError):
                raise Wrong("dropped slots cannot be used again", f"room for {SLOTS - 1} slots after rollback(1)", wrong.result.message,
                            "A cache is full when self.length says so, whatever was written before.") from None  # fmt: skip
            raise


_O1 = "Rolling back means to use fewer slots. Set self.length; the old numbers are overwritten later."


def _check_length(found: int, keep: int, before: int = 8) -> None:
    if found == keep:
        return
    names = {
        before: "rollback does nothing",
        0: "reset instead of rollback: everything is dropped",
        before - keep: "rollback(n) drops n slots instead of keeping n",
        keep - 1: "rollback is off by one: it drops one slot too many",
        keep + 1: "rollback is off by one: it keeps one slot too many",
    }
    raise Wrong(names.get(found, "rollback leaves the wrong length"), f"rollback({keep}) of {before} slots leaves length {keep}",
                str(found), "The argument is the number of slots that stay.")  # fmt: skip


# -- verify, then roll back --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """What a student's verification did."""

    case: Verification
    cache: Any
    emitted: list[int]
    kept: int
    moved: bool
    target: Counted

    @property
    def picture(self) -> dict:
        return _slots_picture(self.kept, self.case)


@register("05.verify_and_rollback")
def verify_and_rollback(kind: Callable, student: Callable, seed: int) -> Result:
    """Every accept length 0 … 5, the rejection at the third position first, and other texts; then the next forward against a fresh one."""
    (model, cases), tried, raised = cases_of(seed), [], None
    for case in cases:
        try:
            tried.append(_tried(kind, student, model, case))
        except Wrong as wrong:
            raised = wrong  # what went before it may say why
            break
    _check_forwards(tried)
    _check_emitted(tried)
    _check_kept(tried)
    if raised:
        raise raised
    for each in tried:
        _check_next_forward(model, each)
    message = f"accept lengths 0 to 5, and other lengths: right tokens, one forward each, and the next one equals a fresh one ({device()})"
    return Result(True, message, picture=tried[0].picture)


@lru_cache(64)
def cases_of(seed: int) -> tuple[TinyAttention, list[Verification]]:
    """A model, and texts on which every mistake shows; some models always choose among a few tokens, and have none."""
    draw = random.Random(f"verify {seed}")
    while True:
        model = TinyAttention(draw.randrange(2**31))
        cases = verifications(model, draw)
        if cases:
            return model, cases


def _tried(kind: Callable, student: Callable, model: Callable, case: Verification) -> Tried:
    cache, counted = new_cache(kind), Counted(model)
    call(model, case.text[:-1], cache, what=f"a forward over the first {len(case.text) - 1} tokens")
    place(cache)
    what = f"verify_and_rollback with {case.accepted} of {len(case.drafts)} drafts right"
    emitted = tokens_of(call(student, counted, cache, case.text[-1], list(case.drafts), what=what))
    return Tried(case, cache, emitted, length_of(cache), has_moved(cache), counted)


def _check_forwards(tried: list[Tried]) -> None:
    for each in tried:
        calls, drafts, asked = each.target.calls, each.case.drafts, [each.case.text[-1], *each.case.drafts]
        if calls == [asked]:
            if each.target.choices != [each.case.rows]:
                raise other_slots("the model", each.case.rows, each.target.choices[0])
            continue
        if len(calls) > 1:
            name = f"{len(calls)} target forwards instead of one"
        elif not calls:
            name = "the target is not asked"
        elif calls == [drafts]:
            name = "the last committed token is not in the forward: the cache never gets it"
        elif calls == [asked[:-1]]:
            name = "the last draft is not in the forward: there is no row for the bonus token"
        else:
            name = "the forward does not score last and the drafts"
        raise Wrong(name, f"one call: model({asked}, cache)", ", ".join(f"model({c})" for c in calls[:3]) or "no call",
                    "All drafts are scored by one forward of K + 1 tokens: [last] + drafts.")  # fmt: skip


def _check_emitted(tried: list[Tried]) -> None:
    wrong = next((each for each in tried if each.emitted != each.case.right), None)
    if wrong is not None:
        mistake = named(EMITTED, [each.case for each in tried], [each.emitted for each in tried])
        name = mistake.name if mistake else "the emitted tokens are wrong"
        if len(wrong.emitted) > len(wrong.case.rows) and mistake is None:
            name = "more tokens than the drafts and one: argmax(-1) gives one for each row"
        raise Wrong(
            name, f"{wrong.case.right}: {wrong.case.accepted} accepted drafts, then the target's argmax",
            f"{wrong.emitted}, from drafts {wrong.case.drafts} and choices {wrong.case.rows}",
            mistake.hint if mistake else "Row i of the logits is the target's choice after last and i drafts.", wrong.picture,
        )  # fmt: skip


def _check_kept(tried: list[Tried]) -> None:
    wrong = next((each for each in tried if each.kept != each.case.kept), None)
    if wrong is not None:
        mistake = named(KEPT, [each.case for each in tried], [each.kept for each in tried])
        case = wrong.case
        raise Wrong(
            mistake.name if mistake else "the wrong slots are kept",
            f"{case.kept} slots: {len(case.text)} of the prefix and {case.accepted} accepted drafts", f"{wrong.kept} slots",
            mistake.hint if mistake else "The forward added last and all drafts. The correction is not in yet.", wrong.picture,
        )  # fmt: skip


def _check_next_forward(model: Callable, each: Tried) -> None:
    if each.moved:
        raise Wrong("the rollback allocates new tensors", "keys and values stay where they are", "their addresses changed", _O1)
    poison(each.cache)
    text = each.case.text + each.emitted
    logits = call(model, each.emitted[-1:], each.cache, what="the next forward")[-1]
    if not torch.allclose(logits, prefill(model, text), atol=CLOSE, rtol=0):
        raise Wrong(
            "the next forward does not see exactly prefix + accepted drafts + correction", "the logits of a fresh forward over that text",
            _slot_report(each.cache, text, model), "Tokens and length are right, the slots are not: what do 05.append and 05.rollback say?",
            each.picture,
        )  # fmt: skip


def _slot_report(cache: Any, text: list[int], model: Callable) -> str:
    slot = first_wrong_slot(cache, text, model)
    return "other logits" if slot is None else f"slot {slot} does not hold token {slot} of that text"


def _slots_picture(kept: int, case: Verification) -> dict:
    text, k = len(case.text), len(case.drafts)

    def row(kept: int) -> list[str]:
        drafts = ["accepted"] * case.accepted + ["rejected"] * (k - case.accepted)  # rejected ones are in a row where one kept too much
        before = (["cached"] * text + drafts)[: max(0, kept)]
        return [*before, "bonus" if case.accepted == k else "recovered", *["dropped"] * (text + k - len(before))]

    rows = {
        "after the forward": ["cached"] * text + ["drafted"] * k + ["free"],
        "next forward, yours": row(min(kept, text + k)),
        "next forward, right": row(case.kept),
    }
    return {"kind": "slots", "rows": rows, "title": f"{text}-token prefix, {k} drafts, {case.accepted} accepted"}


register("05.speculate")(speculate)
