"""Checks of chapter 05: a cache of the student's own, and what the next forward sees after a rollback.

The reference is always a forward without any cache history. Slots that were rolled back are filled with NaN by the check, so that
a forward which reads one of them cannot give the right logits by luck.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autograder.checks.caches import (
    SLOTS,
    has_moved,
    length_of,
    new_cache,
    place,
    poison,
    read,
    read_copies,
    storage,
    unchanged,
)
from autograder.checks.core import Result, Wrong, call, register
from autograder.checks.tiny import HEAD_DIM, HEADS, VOCABULARY, PlainCache, TinyAttention, device, greedy, prefill
from autograder.inside.plain import shown, whole

CLOSE = 1e-9
PREFIX, DRAFTS = 10, 5
LONG = 60  # slots for several rounds


def _random_kv(seed: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    k, v = torch.randn((2, HEADS, count, HEAD_DIM), generator=generator, dtype=torch.float64).to(device())
    return k, v


def _raises_value_error(action: Callable, *args: Any, what: str, hint: str) -> None:
    try:
        action(*args)
    except ValueError:
        return
    except NotImplementedError:
        call(action, *args)
    except Exception as error:
        name = type(error).__name__
        raise Wrong(f"{what} raises {name}, not ValueError", "ValueError", f"{name}: {error}"[:200], hint) from None
    raise Wrong(f"{what} raises nothing", "ValueError", "no exception", hint)


# -- append and read ---------------------------------------------------------------------------------------------------


@register("05.append")
def append(kind: Callable, seed: int) -> Result:
    """Appended slots come back in order, as views of tensors that stay where they are; a full cache refuses before it writes."""
    cache = new_cache(kind, SLOTS)
    place(cache)
    pieces = [_random_kv(seed * 100 + i, n) for i, n in enumerate((7, 1, 4))]
    for k, v in pieces:
        call(cache.append, k, v, what=f"append of {k.shape[1]} slots")
    if has_moved(cache):
        raise Wrong(
            "append allocates new tensors", "keys and values stay where they are", "their addresses changed",
            "Write into a slice, self.keys[:, start:end] = k. torch.cat makes a new tensor each time.",
        )  # fmt: skip
    if length_of(cache) != 12:
        raise Wrong("append does not count its slots", "length 12 after 7 + 1 + 4", str(length_of(cache)), "T is k.shape[1].")
    keys, values = read(cache)
    right_keys, right_values = (torch.cat([piece[i] for piece in pieces], dim=1) for i in (0, 1))
    if torch.equal(keys, right_values) and torch.equal(values, right_keys):
        raise Wrong("keys and values are exchanged", "read() returns (keys, values)", "(values, keys)")
    for name, found, right in (("keys", keys, right_keys), ("values", values, right_values)):
        if not torch.equal(found, right):
            slot = int((found != right).any(-1).any(0).nonzero()[0])
            raise Wrong(f"{name} come back changed", f"slot {slot} as it was appended", "something else",
                        "New slots go behind the last one in use, from self.length on.")  # fmt: skip
    if read_copies(cache):
        raise Wrong("read() copies", "views of the preallocated tensors", "new tensors", "A slice is a view; clone() and cat() copy.")
    _check_overflow(cache, seed)
    return Result(True, f"12 slots in three pieces, read back as views; a full cache refuses and stays as it is ({device()})")


def _check_overflow(cache: Any, seed: int) -> None:
    before = [tensor.clone() for tensor in storage(cache)]
    hint = "Compare self.length + T with max_length first, and raise ValueError before you write."
    _raises_value_error(cache.append, *_random_kv(seed, SLOTS - 11), what="append of one slot too many", hint=hint)
    if not unchanged(cache, before) or length_of(cache) != 12:
        raise Wrong("a full cache writes before it raises", "keys, values and length as before", "they changed", hint)
    try:
        cache.append(*_random_kv(seed, SLOTS - 12))
    except ValueError as error:
        raise Wrong("the last slot cannot be used", f"{SLOTS} slots fit", f"ValueError: {error}", "Raise only above max_length.") from None
    if length_of(cache) != SLOTS:
        raise Wrong("a full cache has the wrong length", f"length {SLOTS}", str(length_of(cache)))


# -- rollback ----------------------------------------------------------------------------------------------------------


@register("05.rollback")
def rollback(kind: Callable, seed: int) -> Result:
    """rollback(n) leaves n slots in use and touches no tensor; the next append overwrites what was dropped."""
    draw = random.Random(f"rollback {seed}")
    for keep in (5, draw.randint(2, 7), 8, 0):
        cache = new_cache(kind)
        call(cache.append, *_random_kv(seed, 8), what="append of 8 slots")
        place(cache)
        before = [tensor.clone() for tensor in storage(cache)]
        call(cache.rollback, keep, what=f"rollback({keep}) of 8 slots")
        _check_length(length_of(cache), keep)
        if has_moved(cache):
            raise Wrong("rollback allocates new tensors", "keys and values stay where they are", "their addresses changed", _O1)
        if not unchanged(cache, before):
            raise Wrong("rollback writes to the tensors", "keys and values unchanged", "some slots changed", _O1)
        poison(cache)
        new = _random_kv(seed + 1, 3)
        call(cache.append, *new, what="append after a rollback")
        for found, old, fresh in zip(read(cache), before, new):
            if not torch.equal(found, torch.cat([old[:, :keep], fresh], dim=1)):
                raise Wrong("after a rollback, append writes to the wrong slots", f"the first {keep} slots, then the 3 new ones",
                            "something else", "append begins at self.length.")  # fmt: skip
    cache = new_cache(kind)
    call(cache.append, *_random_kv(seed, 4), what="append of 4 slots")
    for bad in (5, -1):
        _raises_value_error(cache.rollback, bad, what=f"rollback({bad}) of a cache with 4 slots", hint="Allow 0 <= length <= self.length.")
    return Result(True, "4 rollbacks changed a number and no tensor, and dropped slots were overwritten")


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


class Counted:
    """A model that remembers which tokens it was called with."""

    def __init__(self, model: Callable):
        self._model, self.calls = model, []

    def __call__(self, tokens: Sequence[int], cache: Any) -> Tensor:
        tokens = [int(t) for t in tokens]
        self.calls.append(tokens)
        return self._model(tokens, cache)


@register("05.verify_and_rollback")
def verify_and_rollback(kind: Callable, student: Callable, seed: int) -> Result:
    """Every accept length 0 … 5, the rejection at the third position first; then the next forward against a fresh one."""
    model, picture = TinyAttention(seed), None
    draw = random.Random(f"verify {seed}")
    for accepted in (2, 0, 1, 3, 4, 5):
        prefix = [draw.randrange(VOCABULARY) for _ in range(PREFIX)]
        right = greedy(model, prefix, DRAFTS + 1)
        drafts = right[:accepted] + [(t + 1 + draw.randrange(VOCABULARY - 1)) % VOCABULARY for t in right[accepted:DRAFTS]]
        cache, counted = new_cache(kind), Counted(model)
        call(model, prefix[:-1], cache, what="a forward over the first 9 tokens")
        place(cache)
        what = f"verify_and_rollback with {accepted} of {DRAFTS} drafts right"
        emitted = _tokens(call(student, counted, cache, prefix[-1], list(drafts), what=what))
        picture = picture or _slots_picture(length_of(cache), accepted)
        _check_forwards(counted.calls, prefix[-1], drafts)
        rows = model(prefix + drafts, PlainCache()).argmax(-1).tolist()[PREFIX - 1 :]
        _check_emitted(emitted, right[: accepted + 1], drafts, rows, picture)
        _check_kept(length_of(cache), PREFIX + accepted, accepted, picture)
        if has_moved(cache):
            raise Wrong("the rollback allocates new tensors", "keys and values stay where they are", "their addresses changed", _O1)
        poison(cache)
        logits = call(model, emitted[-1:], cache, what="the next forward")[-1]
        if not torch.allclose(logits, prefill(model, prefix + emitted), atol=CLOSE, rtol=0):
            raise Wrong(
                "the next forward does not see exactly prefix + accepted drafts + correction",
                "the logits of a fresh forward over that text", _slot_report(cache, prefix + emitted, model), picture=picture,
            )  # fmt: skip
    message = f"accept lengths 0 to {DRAFTS}: right tokens, one forward each, and the next forward equals a fresh one to 1e-9 ({device()})"
    return Result(True, message, picture=picture)


def _tokens(answer: Any) -> list[int]:
    try:
        return [whole(token) for token in answer]
    except (TypeError, ValueError):
        raise Wrong("the emitted tokens are no list of token ids", "a list such as [4, 7, 1]", shown(answer)) from None


def _check_emitted(emitted: list[int], right: list[int], drafts: list[int], rows: list[int], picture: dict | None) -> None:
    """rows: the target's argmax after last and i drafts; right: the emitted tokens as they should be."""
    if emitted == right:
        return
    accepted, k = len(right) - 1, len(drafts)
    later = next((i for i in range(k) if drafts[i] != rows[i + 1]), k)  # accepted, if draft i is compared with row i + 1
    before = next((i for i in range(k) if drafts[i] != rows[max(0, i - 1)]), k)
    names = [
        ("no bonus token when every draft is right", emitted == drafts == right[:-1]),
        ("no correction token after a rejection", emitted == right[:-1]),
        ("emits the rejected token", emitted == drafts[: accepted + 1]),
        ("accepts every draft: compare with the target's argmax", emitted[:k] == drafts),
        ("only the correction is returned", emitted == right[-1:]),
        ("compares with the wrong row", any(emitted[:-1] == drafts[:n] and emitted[-1:] in ([rows[n]], [rows[min(n + 1, k)]])
                                            for n in (later, before))),
    ]  # fmt: skip
    raise Wrong(
        next((name for name, fits in names if fits), "the emitted tokens are wrong"),
        f"{right}: {accepted} accepted drafts, then the target's argmax", f"{emitted}, from drafts {drafts}",
        "Row i of the logits is the target's choice after last and i drafts; accept while it equals drafts[i].", picture,
    )  # fmt: skip


def _check_forwards(calls: list[list[int]], last: int, drafts: list[int]) -> None:
    if calls == [[last, *drafts]]:
        return
    if len(calls) > 1:
        name = f"{len(calls)} target forwards instead of one"
    elif calls == [drafts]:
        name = "the last committed token is not in the forward: the cache never gets it"
    else:
        name = "the forward does not score last and the drafts"
    raise Wrong(name, f"one call: model({[last, *drafts]}, cache)", ", ".join(f"model({c})" for c in calls[:3]) or "no call",
                "All drafts are scored by one forward of K + 1 tokens: [last] + drafts.")  # fmt: skip


def _check_kept(found: int, right: int, accepted: int, picture: dict | None) -> None:
    if found == right:
        return
    dropped = DRAFTS - accepted
    names = {
        0: "reset instead of rollback: the whole cache is dropped",
        PREFIX + DRAFTS: "no rollback: the rejected drafts are still in the cache",
        right + 1: "rollback is off by one: a rejected draft, or a slot never written for the correction, is kept",
        right - 1: "rollback is off by one: an accepted draft, or the last token of the prefix, is dropped",
        dropped: "rollback got the number of dropped slots instead of the length that stays",
        PREFIX: "rollback to the prefix: the accepted drafts are dropped too",
        accepted: "the prefix is not counted in the length that stays",
    }
    raise Wrong(
        names.get(found, "the wrong slots are kept"),
        f"{right} slots: {PREFIX} of the prefix and {accepted} accepted drafts", f"{found} slots",
        "The cache held the prefix without its last token; the forward added last and all drafts. The correction is not in yet.", picture,
    )  # fmt: skip


def _slot_report(cache: Any, text: list[int], model: Callable) -> str:
    slot = _first_wrong_slot(cache, text, model)
    return "other logits" if slot is None else f"slot {slot} does not hold token {slot} of that text"


def _first_wrong_slot(cache: Any, text: Sequence[int], model: Callable) -> int | None:
    """The first slot in use that differs from a fresh forward's; None if all agree."""
    length = min(length_of(cache), len(text))
    if length == 0:
        return None
    fresh = PlainCache()
    model(text[:length], fresh)
    wrong = torch.zeros(length, dtype=torch.bool, device=device())
    for found, right in zip(read(cache), fresh.read()):
        wrong |= ~torch.isclose(found[:, :length], right, atol=CLOSE, rtol=0).all(-1).all(0)
    return int(wrong.nonzero()[0]) if wrong.any() else None


def _slots_picture(length: int, accepted: int) -> dict:
    def row(kept: int, correction: bool) -> list[str]:
        slots = ["prefix"] * PREFIX + ["draft"] * DRAFTS
        slots = slots[: max(0, kept)] + (["correction"] if correction else [])
        return slots + ["dropped"] * (PREFIX + DRAFTS + 1 - len(slots))

    rows = {
        "after the forward": ["prefix"] * PREFIX + ["draft"] * DRAFTS + ["free"],
        "next forward, yours": row(min(length, PREFIX + DRAFTS), True),
        "next forward, right": row(PREFIX + accepted, True),
    }
    return {"kind": "slots", "rows": rows, "title": f"{PREFIX}-token prefix, {DRAFTS} drafts, {accepted} accepted"}


# -- whole rounds with two caches --------------------------------------------------------------------------------------


class Saboteur:
    """A draft: the target itself, but after the tokens at the positions `wrong` its argmax is another one."""

    def __init__(self, model: Callable, wrong: set[int]):
        self._model, self._wrong = model, wrong

    def __call__(self, tokens: Sequence[int], cache: Any) -> Tensor:
        start, logits = length_of(cache), self._model(tokens, cache)
        for row in range(len(tokens)):
            if start + row in self._wrong:
                logits[row, logits[row].argmax()] = -torch.inf
        return logits


@register("05.speculate")
def speculate(kind: Callable, student: Callable, seed: int) -> Result:
    """Rounds in a row with scripted accept lengths; after each, both caches hold the committed text and nothing else."""
    k, draw = 4, random.Random(f"rounds {seed}")
    script = [k, 2, k, k, 0, 1, 3, draw.randrange(k)]
    tokens = [draw.randrange(VOCABULARY) for _ in range(PREFIX)]
    wrong, length = set(), len(tokens)
    for accepted in script:
        wrong |= {length - 1 + accepted} if accepted < k else set()
        length += accepted + 1
    model = TinyAttention(seed + 1)
    target, draft = Counted(model), Counted(Saboteur(model, wrong))
    caches = [new_cache(kind, LONG), new_cache(kind, LONG)]
    for cache in caches:
        call(model, tokens[:-1], cache, what="a forward over the prompt")
    for number, accepted in enumerate(script):
        target.calls.clear(), draft.calls.clear()
        what = f"speculate, round {number + 1}, {accepted} of {k} drafts right"
        emitted = _tokens(call(student, target, draft, *caches, list(tokens), k, what=what))
        right = greedy(model, tokens, k + 1)
        before = script[number - 1] if number else None
        _check_draft_cache(caches[1], tokens, emitted, k, before, model)
        _check_round(emitted, right[: accepted + 1], draft.calls, target.calls, k)
        tokens += emitted
        for name, cache in zip(("target", "draft"), caches):
            _check_committed(name, cache, tokens, model)
            poison(cache)
    return Result(True, f"{len(script)} rounds, accept lengths {', '.join(map(str, script))}: the text is plain greedy decoding's, and "
                        f"both caches are right after each ({device()})")  # fmt: skip


def _check_draft_cache(cache: Any, tokens: list[int], emitted: list[int], k: int, before: int | None, model: Callable) -> None:
    """The mistake of this chapter: after k acceptances the draft has never been fed its own last token."""
    slot = _first_wrong_slot(cache, tokens, model) if length_of(cache) else None
    if slot is not None and before == k and slot >= len(tokens) - 2:
        raise Wrong(
            "the draft's cache misses the last drafted token after full acceptance",
            f"slot {len(tokens) - 2} of the draft's cache holds that token", "the token after it",
            "The draft never reads its own last proposal. Feed all that its cache lacks: tokens[draft_cache.length:], then two tokens.",
        )  # fmt: skip


def _check_round(emitted: list[int], right: list[int], drafted: list[list[int]], verified: list[list[int]], k: int) -> None:
    if len(verified) != 1:
        raise Wrong(f"{len(verified)} target forwards in one round", "one", str(len(verified)), "One forward scores last and all drafts.")
    proposed = verified[0][1:]
    if len(proposed) != k:
        raise Wrong(f"{len(proposed)} tokens are drafted", f"k = {k}", str(proposed), "Draft k tokens, then verify all at once.")
    if emitted != right:
        own = emitted[:k] == proposed and len(emitted) > len(right)
        raise Wrong(
            "accepts against the draft's own argmax" if own else "the round's tokens are not those of plain greedy decoding",
            str(right), f"{emitted}, from drafts {proposed}", "The target's argmax decides: let verify_and_rollback do it.",
        )  # fmt: skip
    fed = sum(map(len, drafted))
    if fed > k + 2:
        raise Wrong(f"the draft was fed {fed} tokens in one round", f"at most {k + 2}", f"{len(drafted)} forwards",
                    "Feed only what the draft's cache lacks: the committed text is in it already.")  # fmt: skip


def _check_committed(name: str, cache: Any, tokens: list[int], model: Callable) -> None:
    most = len(tokens) - 1  # the newest token is committed, but has not been fed yet
    if length_of(cache) > most:
        raise Wrong(
            f"the {name}'s cache is not rolled back far enough", f"at most {most} slots, the text without its newest token",
            str(length_of(cache)), "Roll both caches back to the accepted text.",
        )  # fmt: skip
    slot = _first_wrong_slot(cache, tokens, model)
    if slot is not None:
        raise Wrong(f"the {name}'s cache holds a token that is not in the text", f"slot {slot} holds token {slot} of the committed text",
                    "another token or position", "Roll both caches back to the accepted text.")  # fmt: skip
    if length_of(cache) < (most if name == "target" else most - 1):
        raise Wrong(f"the {name}'s cache drops too much", f"{most} slots", str(length_of(cache)),
                    "Accepted drafts stay in the cache: that is what makes the next round cheap.")  # fmt: skip
