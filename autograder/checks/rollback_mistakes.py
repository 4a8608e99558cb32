"""The mistakes of chapter 05's verification by what they emit and how many slots they keep, and texts on which each of them shows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autograder.checks.core import Mistake
from autograder.checks.tiny import VOCABULARY, PlainCache

EARLIER, LATER, ANY = "earlier", "later", "any"  # the first wrong draft: a token that the target chose before it, or puts after it
MATCHING, DIFFERENT = "matching", "different"  # the drafts after it: each what the target puts after those before it, or not


@dataclass(frozen=True)
class Verification:
    """Drafts as the target sees them. rows: its choices after the last token of the text and i drafts, K + 1 of them."""

    text: list[int]
    drafts: list[int]
    rows: list[int]

    @property
    def accepted(self) -> int:
        return next((i for i, (draft, row) in enumerate(zip(self.drafts, self.rows)) if draft != row), len(self.drafts))

    @property
    def right(self) -> list[int]:
        return self.cut(self.accepted)

    @property
    def kept(self) -> int:
        """The slots that stay: the text and the accepted drafts."""
        return len(self.text) + self.accepted

    def cut(self, accepted: int, row: int | None = None) -> list[int]:
        """So many drafts, and one choice of the target."""
        return [*self.drafts[:accepted], self.rows[accepted if row is None else row]]


# -- what is emitted ---------------------------------------------------------------------------------------------------


def _leading(accepts: Callable[[Verification, int], bool]) -> Callable[[Verification], int]:
    return lambda v: next((i for i in range(len(v.drafts)) if not accepts(v, i)), len(v.drafts))


def _matches(v: Verification) -> list[bool]:
    return [draft == row for draft, row in zip(v.drafts, v.rows)]


def _last_wrong(v: Verification) -> int:
    return max((i for i, match in enumerate(_matches(v)) if not match), default=len(v.drafts))


_after = _leading(lambda v, i: v.drafts[i] == v.rows[i + 1])
_before = _leading(lambda v, i: v.drafts[i] == v.rows[max(0, i - 1)])
_among = _leading(lambda v, i: v.drafts[i] in v.rows)

_STOP = "Stop at the first draft that is not the target's argmax: `while accepted < len(drafts) and drafts[accepted] == choices[accepted]`."
_ROW = "Row i of the logits is the target's choice after last and i drafts; accept while it equals drafts[i]."
_ONE_MORE = "After the accepted drafts comes one token of the target's: choices[accepted]."

EMITTED = [
    Mistake("all matches are counted, not only the leading ones", _STOP, lambda v: v.cut(sum(_matches(v)))),
    Mistake("accepts up to the last match", _STOP, lambda v: v.cut(max((i + 1 for i, m in enumerate(_matches(v)) if m), default=0))),
    Mistake("accepts up to the last mismatch: the loop goes on after the first", _STOP, lambda v: v.cut(_last_wrong(v))),
    Mistake("accepted drafts are collected from after the rejection too", _STOP,
            lambda v: [d for d, m in zip(v.drafts, _matches(v)) if m] + [v.rows[v.accepted]]),
    Mistake("goes on after a rejection, with the target's own choices", f"{_STOP} What comes after the correction answers another text.",
            lambda v: list(v.rows)),
    Mistake("accepts every draft: compare with the target's argmax", _ROW, lambda v: v.cut(len(v.drafts))),
    Mistake("accepts no draft", _ROW, lambda v: v.cut(0)),
    Mistake("accepts all drafts or none", _STOP, lambda v: v.cut(len(v.drafts) if all(_matches(v)) else 0)),
    Mistake("a draft is accepted that the target chose somewhere else", _ROW, lambda v: v.cut(_among(v))),
    Mistake("no bonus token when every draft is right", f"{_ONE_MORE} Does your loop reach the last draft?",
            lambda v: v.right[: len(v.drafts)]),
    Mistake("no correction token after a rejection", _ONE_MORE, lambda v: v.drafts[: v.accepted]),
    Mistake("no correction token after a rejection, though a bonus token", _ONE_MORE,
            lambda v: v.right if all(_matches(v)) else v.drafts[: v.accepted]),
    Mistake("one accepted draft too few", _ROW, lambda v: v.cut(max(0, v.accepted - 1))),
    Mistake("emits the rejected token", _ONE_MORE, lambda v: (v.drafts + v.rows[-1:])[: v.accepted + 1]),
    Mistake("emits the rejected token, and the correction after it", _ONE_MORE,
            lambda v: v.right if all(_matches(v)) else [*v.drafts[: v.accepted + 1], v.rows[v.accepted]]),
    Mistake("the correction is the choice after the rejected draft", "It comes in place of that draft: choices[accepted].",
            lambda v: v.cut(v.accepted, min(v.accepted + 1, len(v.drafts)))),
    Mistake("the correction is one row too early", "It comes after the last accepted draft: choices[accepted].",
            lambda v: v.cut(v.accepted, v.accepted - 1)),
    Mistake("the correction is the choice after all drafts", "It comes after the last accepted draft: choices[accepted].",
            lambda v: v.cut(v.accepted, -1)),
    Mistake("only the correction is returned", "The accepted drafts come before it.", lambda v: v.right[-1:]),
    Mistake("last is emitted once more", "It is in the text already.", lambda v: v.text[-1:] + v.right),
    Mistake("the whole text is returned", "Return the new tokens alone.", lambda v: v.text + v.right),
    Mistake("accepts nothing when every draft is right", "Without a mismatch to be found all len(drafts) are accepted.",
            lambda v: v.cut(v.accepted % len(v.drafts))),
    Mistake("compares with the wrong row: the one after", _ROW, lambda v: v.cut(_after(v))),
    Mistake("compares with the wrong row: the one after, which gives the correction too", _ROW,
            lambda v: v.cut(_after(v), min(_after(v) + 1, len(v.drafts)))),
    Mistake("compares with the wrong row: the one before", _ROW, lambda v: v.cut(_before(v))),
]  # fmt: skip


def named(catalogue: Sequence[Mistake], cases: Sequence, answers: Sequence) -> Mistake | None:
    """The first mistake that gives all of these answers."""
    return next((m for m in catalogue if all(m.variant(case) == answer for case, answer in zip(cases, answers))), None)


# -- how many slots stay -----------------------------------------------------------------------------------------------


_SLOTS = "The cache held the text without its last token; the forward added last and all drafts. The correction is not in yet."

KEPT = [
    Mistake("reset instead of rollback: the whole cache is dropped", _SLOTS, lambda v: 0),
    Mistake("no rollback: the rejected drafts are still in the cache", "cache.rollback(length) with the slots that stay.",
            lambda v: len(v.text) + len(v.drafts)),
    Mistake("rollback is off by one: a rejected draft, or a slot never written for the correction, is kept", _SLOTS,
            lambda v: min(v.kept + 1, len(v.text) + len(v.drafts))),
    Mistake("rollback is off by one: an accepted draft, or the last token of the prefix, is dropped", _SLOTS, lambda v: v.kept - 1),
    Mistake("rollback got the number of dropped slots instead of the length that stays", "rollback(n) keeps n slots.",
            lambda v: len(v.drafts) - v.accepted),
    Mistake("as many slots are dropped as drafts were accepted", "The rejected ones go: len(drafts) - accepted.",
            lambda v: len(v.text) + len(v.drafts) - v.accepted),
    Mistake("rollback to the prefix: the accepted drafts are dropped too", _SLOTS, lambda v: len(v.text)),
    Mistake("rollback to where the forward began: last and the accepted drafts are dropped too", _SLOTS, lambda v: len(v.text) - 1),
    Mistake("the prefix is not counted in the length that stays", "rollback(n) keeps the first n slots of the whole cache.",
            lambda v: v.accepted),
    Mistake("the prefix is not counted in the length that stays: only what was emitted is", "rollback(n) keeps the first n slots of all.",
            lambda v: v.accepted + 1),
    Mistake("only one slot is dropped, however many drafts were rejected", _SLOTS,
            lambda v: len(v.text) + len(v.drafts) - (v.accepted < len(v.drafts))),
    Mistake("no rollback when every draft is rejected", "That is a rejection like any other.",
            lambda v: v.kept if v.accepted else len(v.text) + len(v.drafts)),
]  # fmt: skip


# -- texts on which all of them show -----------------------------------------------------------------------------------

# The length of the text, the number of drafts, how many are right, the first wrong one, and what comes after it.
SHAPES = [
    (10, 5, 2, EARLIER, MATCHING), (10, 5, 0, ANY, MATCHING), (10, 5, 1, EARLIER, DIFFERENT), (10, 5, 3, ANY, DIFFERENT),
    (10, 5, 4, ANY, ""), (10, 5, 5, "", ""), (7, 2, 0, LATER, MATCHING), (7, 3, 1, ANY, MATCHING), (12, 1, 0, ANY, ""), (12, 1, 1, "", ""),
]  # fmt: skip


TRIES = 60  # of each shape with one model


def verifications(model: Callable, draw: random.Random) -> list[Verification]:
    """One of each shape; in one of them every mistake emits other tokens than the right ones, or keeps other slots. Empty: none found."""
    found = []
    for shape in SHAPES:
        drawn = (_verification(model, draw, *shape) for _ in range(TRIES))
        found.append(next(filter(None, drawn), None))
        if found[-1] is None:
            return []
    shown = named(EMITTED, found, [v.right for v in found]) is None and named(KEPT, found, [v.kept for v in found]) is None
    return found if shown else []


def _verification(model: Callable, draw: random.Random, length: int, k: int, accepted: int, wrong: str, tail: str) -> Verification | None:
    """Of a text drawn once; None if it is unfit. The K + 1 choices of the target must differ, so that no row stands for another."""

    def choice(tokens: list[int]) -> int:
        return int(model(tokens, PlainCache())[-1].argmax())

    text, drafts = [draw.randrange(VOCABULARY) for _ in range(length)], []
    rows = [choice(text)]
    for i in range(k):
        others = [token for token in range(VOCABULARY) if token != rows[i]]
        if i < accepted or (i > accepted and tail == MATCHING):
            others = rows[i:]
        elif i == accepted and wrong == EARLIER:
            others = rows[:i]
        elif i == accepted and wrong == LATER:
            others = [token for token in others if choice([*text, *drafts, token]) == token]
        if not others:
            return None
        drafts.append(draw.choice(others))
        rows.append(choice(text + drafts))
        if len(set(rows)) < len(rows):
            return None
    return Verification(text, drafts, rows)
