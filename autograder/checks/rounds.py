"""Rounds of chapter 05: a target and a draft, each with a cache of the student's, and what both hold after each round."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autograder.checks.caches import Form, length_of, new_cache, poison, read
from autograder.checks.core import Result, Wrong, call
from autograder.checks.rollback_mistakes import EMITTED, Verification, named
from autograder.checks.tiny import VOCABULARY, PlainCache, TinyAttention, device, greedy, prefill
from autograder.inside.plain import shown, whole

CLOSE = 1e-9
SCRIPT = [(4, 4), (4, 2), (3, 3), (4, 4), (2, 0), (5, 1), (4, 3), (1, 1), (4, None)]  # k, and how many are right; None: drawn
SPARE = 2  # slots beyond what the rounds need


class Counted:
    """A model that remembers which tokens it was called with, and the argmax of each row that it answered."""

    def __init__(self, model: Callable):
        self._model, self.calls, self.choices = model, [], []

    def __call__(self, tokens: Sequence[int], cache: Any) -> Tensor:
        tokens = [int(t) for t in tokens]
        self.calls.append(tokens)
        logits = self._model(tokens, cache)
        self.choices.append(logits.argmax(-1).tolist())
        return logits


def tokens_of(answer: Any) -> list[int]:
    try:
        return [whole(token) for token in answer]
    except (TypeError, ValueError):
        raise Wrong("the emitted tokens are no list of token ids", "a list such as [4, 7, 1]", shown(answer)) from None


def first_wrong_slot(cache: Any, text: Sequence[int], model: Callable) -> int | None:
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


def other_slots(name: str, right: list[int], found: list[int]) -> Wrong:
    return Wrong(f"{name} does not see the text: its cache gives it other slots", f"the choices of a fresh forward, {right}", str(found),
                 "Each model works on a cache of its own, and each cache on tensors of its own: what does 05.append say?")  # fmt: skip


class Draft:
    """Another model than the target, with keys and values of its own. Its argmax is the target's, but after the positions `wrong`.

    It answers to what it was fed: where a slot has got another token than the text's its argmax is that of another text.
    """

    def __init__(self, own: Callable, target: Callable, wrong: set[int]):
        self._own, self._target, self._wrong, self._fed = own, target, wrong, []

    def __call__(self, tokens: Sequence[int], cache: Any) -> Tensor:
        start, logits = length_of(cache), self._own(tokens, cache)
        for position, token in enumerate(tokens, start):
            self._fed[position:] = [token]
            best = int(prefill(self._target, self._fed).argmax())
            if position in self._wrong:
                best = (best + 1 + position % (VOCABULARY - 1)) % VOCABULARY
            logits[position - start, best] = logits[position - start].max() + 1
        return logits


def speculate(kind: Callable, student: Callable, seed: int) -> Result:
    """Rounds in a row with scripted accept lengths; after each, both caches hold the committed text and nothing else."""
    draw = random.Random(f"rounds {seed}")
    script = [(k, draw.randrange(k) if accepted is None else accepted) for k, accepted in SCRIPT]
    target_model, tokens = _target_and_prompt(draw, script)
    models = {"target": target_model, "draft": TinyAttention(seed)}
    wrong, length, slots = set(), len(tokens), 0
    for k, accepted in script:
        wrong |= {length - 1 + accepted} if accepted < k else set()
        slots = max(slots, length + k)
        length += accepted + 1
    target, draft = Counted(models["target"]), Counted(Draft(models["draft"], models["target"], wrong))
    caches = [new_cache(kind, Form(slots=slots + SPARE)) for _ in models]
    for model, cache in zip((target, draft), caches):
        call(model, tokens[:-1], cache, what="a forward over the prompt")
    lags = False
    for number, (k, accepted) in enumerate(script, 1):
        for model in (target, draft):
            model.calls.clear(), model.choices.clear()
        what = f"speculate, round {number}, {accepted} of {k} drafts right"
        emitted = tokens_of(call(student, target, draft, *caches, list(tokens), k, what=what))
        _check_draft_cache(caches[1], tokens, emitted, lags, models["draft"])
        _check_round(target, draft, models["target"], tokens, emitted, k, accepted)
        tokens, lags = tokens + emitted, accepted == k
        for (name, model), cache in zip(models.items(), caches):
            _check_committed(name, cache, tokens, model)
            poison(cache)
    lengths = ", ".join(f"{accepted} of {k}" for k, accepted in script)
    return Result(True, f"rounds that accept {lengths}: plain greedy decoding's text, and both caches are right after each ({device()})")


def _target_and_prompt(draw: random.Random, script: list[tuple[int, int]]) -> tuple[TinyAttention, list[int]]:
    """No round of full acceptance ends with two equal tokens: the slot of one would be right for the other, and hide which was fed."""
    while True:
        target, prompt = TinyAttention(draw.randrange(2**31)), [draw.randrange(VOCABULARY) for _ in range(10)]
        text = list(prompt)
        for k, accepted in script:
            text += greedy(target, text, accepted + 1)
            if accepted == k and text[-1] == text[-2]:
                break
        else:
            return target, prompt


def _check_draft_cache(cache: Any, tokens: list[int], emitted: list[int], lags: bool, model: Callable) -> None:
    """The mistake of this chapter: after k acceptances the draft has never been fed its own last token."""
    slot = first_wrong_slot(cache, tokens, model) if length_of(cache) else None
    if slot is not None and lags and slot >= len(tokens) - 2:
        raise Wrong(
            "the draft's cache misses the last drafted token after full acceptance",
            f"slot {len(tokens) - 2} of the draft's cache holds that token", "the token after it",
            "The draft never reads its own last proposal. Feed all that its cache lacks: tokens[draft_cache.length:], then two tokens.",
        )  # fmt: skip


def _check_round(target: Counted, draft: Counted, model: Callable, tokens: list[int], emitted: list[int], k: int, accepted: int) -> None:
    if len(target.calls) != 1:
        raise Wrong(f"{len(target.calls)} target forwards in one round", "one", str(len(target.calls)),
                    "One forward scores last and all drafts.")  # fmt: skip
    drafts = target.calls[0][1:]
    if len(drafts) != k:
        raise Wrong(f"{len(drafts)} tokens are drafted", f"k = {k}", str(len(drafts)), "Draft k tokens, then verify all at once.")
    case = Verification(tokens, drafts, model(tokens + drafts, PlainCache()).argmax(-1).tolist()[len(tokens) - 1 :])
    if target.choices != [case.rows]:
        raise other_slots("the target", case.rows, target.choices[0])
    if emitted != case.right:
        found = named(EMITTED, [case], [emitted])
        name = found.name if found else "the round's tokens are not those of plain greedy decoding"
        if case.accepted < k and emitted == [*drafts, case.rows[-1]]:
            name = "accepts against the draft's own argmax"
        raise Wrong(name, str(case.right), f"{emitted}, from drafts {drafts}",
                    "The target's argmax decides: let verify_and_rollback do it.")  # fmt: skip
    answers = [rows[-1] for rows in draft.choices[:k]]
    if drafts != answers or case.accepted != accepted:
        raise Wrong("the drafts are not what the draft puts after the text", f"{answers}, {accepted} of them right", f"{drafts}",
                    "Feed what the cache lacks, and take the argmax of the last row: logits[-1].")  # fmt: skip
    fed = sum(map(len, draft.calls))
    if fed > k + 2:
        raise Wrong(f"the draft was fed {fed} tokens in one round", f"at most {k + 2}", f"{len(draft.calls)} forwards",
                    "Feed only what the draft's cache lacks: the committed text is in it already.")  # fmt: skip


def _check_committed(name: str, cache: Any, tokens: list[int], model: Callable) -> None:
    most = len(tokens) - 1  # the newest token is committed, but has not been fed yet
    if length_of(cache) > most:
        raise Wrong(
            f"the {name}'s cache is not rolled back far enough", f"at most {most} slots, the text without its newest token",
            str(length_of(cache)), "Roll both caches back to the accepted text.",
        )  # fmt: skip
    slot = first_wrong_slot(cache, tokens, model)
    if slot is not None:
        raise Wrong(f"the {name}'s cache holds a token that is not in the text", f"slot {slot} holds token {slot} of the committed text",
                    "another token or position, or another model's", "Roll both caches back to the accepted text.")  # fmt: skip
    if length_of(cache) < (most if name == "target" else most - 1):
        raise Wrong(f"the {name}'s cache drops too much", f"{most} slots", str(length_of(cache)),
                    "Accepted drafts stay in the cache: that is what makes the next round cheap.")  # fmt: skip
