"""Chapter 05: a cache, a verification and a round out of parts, in seven styles, and the mistakes as replaced parts.

A style says where a cache keeps its tensors and its length, how slots are written and cut out, and how agreement is counted. Parts say
which slots, which tokens, and what is fed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from autograder.zoo.matrix import Matrix, Mistake


def two(style, heads, slots, head_dim, device, dtype):
    return style.allocate(heads, slots, head_dim, device, dtype)


def refuse(message: str):
    raise ValueError(message)


@dataclass(frozen=True)
class Parts:
    # the cache's
    tensors: Callable = two
    begin: Callable = lambda length, new: length  # the slot at which an append writes
    full: Callable = lambda length, new, slots: length + new > slots
    refuse: Callable = refuse
    late: bool = False  # the refusal comes after the writing
    stored: Callable = lambda k, v: (k, v)
    counted: Callable = lambda length, new: length + new
    got: Callable = lambda keys, values: (keys, values)
    used: Callable = lambda length, slots: length  # of what is read
    allowed: Callable = lambda to, length: 0 <= to <= length
    left: Callable = lambda to, length: to
    after: Callable = lambda cache, length: None  # what a rollback does to the tensors
    # the verification's
    fed: Callable = lambda last, drafts: [last, *drafts]
    accepted: Callable = lambda style, drafts, choices: style.leading(drafts, choices)
    kept: Callable = lambda start, accepted, k: start + 1 + accepted
    emitted: Callable = lambda drafts, choices, accepted: [*drafts[:accepted], choices[accepted]]
    # the round's
    count: Callable = lambda k: k
    lacking: Callable = lambda text, cache: text[cache.length :]
    picked: Callable = lambda logits: int(logits[-1].argmax())
    caches: Callable = lambda target, draft: (target, draft)
    draft_kept: Callable = lambda cache, tokens, new: min(cache.length, len(tokens) + len(new) - 1)
    returned: Callable = lambda tokens, new: new


# -- styles ------------------------------------------------------------------------------------------------------------


def by_while(drafts, choices):
    n = 0
    while n < len(drafts) and drafts[n] == choices[n]:
        n += 1
    return n


def by_next(drafts, choices):
    return next((i for i, (draft, choice) in enumerate(zip(drafts, choices)) if draft != choice), len(drafts))


def by_flatnonzero(drafts, choices):
    wrong = np.flatnonzero(np.array(drafts) != np.array(choices)[: len(drafts)])
    return int(wrong[0]) if len(wrong) else len(drafts)


def by_product(drafts, choices):
    same = torch.tensor(drafts) == torch.tensor(choices)[: len(drafts)]
    return int(same.long().cumprod(0).sum())


def by_recursion(drafts, choices):
    return 1 + by_recursion(drafts[1:], choices[1:]) if drafts and drafts[0] == choices[0] else 0


def zeros(heads, slots, head_dim, device, dtype):
    return [torch.zeros(heads, slots, head_dim, device=device, dtype=dtype) for _ in range(2)]


def halves(heads, slots, head_dim, device, dtype):
    return list(torch.empty(2, heads, slots, head_dim, device=device, dtype=dtype))


def by_slice(tensor, at, new):
    tensor[:, at : at + new.shape[1]] = new


def by_copy(tensor, at, new):
    tensor.narrow(1, at, new.size(1)).copy_(new)


def by_index(tensor, at, new):
    tensor.index_copy_(1, torch.arange(at, at + new.shape[-2], device=tensor.device), new)


def slot_by_slot(tensor, at, new):
    for i in range(new.shape[1]):
        tensor[:, at + i] = new[:, i]


@dataclass(frozen=True)
class Style:
    allocate: Callable = zeros
    write: Callable = by_slice
    cut: Callable = lambda tensor, length: tensor[:, :length]
    leading: Callable = by_while
    bases: tuple[type, ...] = ()
    around: Callable = lambda method: method  # a decorator of every method
    tokens: Callable = list


class Counter:
    """A length that is a property, and lies in a dataclass of its own."""

    @property
    def length(self):
        return self.state.length

    @length.setter
    def length(self, value):
        self.__dict__.setdefault("state", SimpleNamespace()).length = value


@dataclass
class Fields:
    keys: torch.Tensor
    values: torch.Tensor
    length: int = field(default=0)


def cache_class(style: Style, parts: Parts) -> type:
    class StaticCache(*style.bases):
        @style.around
        def __init__(self, heads, max_length, head_dim, device, dtype):
            keys, values = parts.tensors(style, heads, max_length, head_dim, device, dtype)
            if Fields in style.bases:
                Fields.__init__(self, keys, values)
            else:
                self.keys, self.values, self.length = keys, values, 0

        @style.around
        def append(self, k, v):
            new, slots = k.shape[1], self.keys.shape[1]
            is_full = parts.full(self.length, new, slots)
            if is_full and not parts.late:
                parts.refuse("the cache is full")
            at = parts.begin(self.length, new)
            for tensor, part in zip((self.keys, self.values), parts.stored(k, v)):
                style.write(tensor, at, part[:, : max(0, slots - at)] if parts.late else part)
            if is_full:
                parts.refuse("the cache is full")
            self.length = parts.counted(self.length, new)

        def read(self):
            end = parts.used(self.length, self.keys.shape[1])
            return parts.got(*(style.cut(tensor, end) for tensor in (self.keys, self.values)))

        @style.around
        def rollback(self, length):
            if not parts.allowed(length, self.length):
                parts.refuse("no such length")
            self.length = parts.left(length, self.length)
            parts.after(self, length)

    return StaticCache


def written(**how: Any) -> Callable:
    style = Style(**how)

    def functions(**replaced: Any) -> dict[str, Any]:
        parts = replace(Parts(), **replaced)

        def verify_and_rollback(model, cache, last, drafts):
            start = cache.length
            choices = model(parts.fed(last, drafts), cache).argmax(-1).tolist()
            accepted = parts.accepted(style, list(drafts), choices)
            kept = parts.kept(start, accepted, len(drafts))
            if kept is not None:
                cache.rollback(kept)
            return style.tokens(parts.emitted(list(drafts), choices, accepted))

        def speculate(target, draft, target_cache, draft_cache, tokens, k):
            target_cache, draft_cache = parts.caches(target_cache, draft_cache)
            drafts = []
            for _ in range(parts.count(k)):
                drafts.append(parts.picked(draft(parts.lacking(tokens + drafts, draft_cache), draft_cache)))
            new = list(verify_and_rollback(target, target_cache, tokens[-1], drafts))
            kept = parts.draft_kept(draft_cache, tokens, new)
            if kept is not None:
                draft_cache.rollback(kept)
            return style.tokens(parts.returned(tokens, new))

        return {"StaticCache": cache_class(style, parts), "verify_and_rollback": verify_and_rollback, "speculate": speculate}

    return functions


STYLES = {
    "slices": written(),
    "narrow and copy_": written(write=by_copy, cut=lambda tensor, length: tensor.narrow(1, 0, length), leading=by_next),
    "property": written(allocate=halves, bases=(Counter,), leading=by_recursion, tokens=tuple),
    "dataclass": written(bases=(Fields,), leading=by_next),
    "no_grad": written(around=torch.no_grad(), leading=by_product, tokens=torch.tensor),
    "index_copy_": written(write=by_index, leading=by_flatnonzero, tokens=np.array),
    "slot by slot": written(allocate=halves, write=slot_by_slot, cut=lambda tensor, length: tensor[..., 0:length, :]),
}

# -- mistakes ----------------------------------------------------------------------------------------------------------


def mistake(check: str, name: str, says: str = "", **parts: Any) -> Mistake:
    styles = parts.pop("styles", ())
    return Mistake(name, f"05.{check}", says or name, parts, tuple(styles), parts.pop("unnamed", {}))


def append(name: str, says: str = "", **parts: Any) -> Mistake:
    return mistake("append", name, says, **parts)


def rollback(name: str, says: str = "", **parts: Any) -> Mistake:
    return mistake("rollback", name, says, **parts)


def emits(name: str, accepted: Callable, says: str = "") -> Mistake:
    return mistake("verify_and_rollback", name, says, accepted=accepted)


def gives(name: str, emitted: Callable) -> Mistake:
    return mistake("verify_and_rollback", name, emitted=emitted)


def keeps(name: str, kept: Callable) -> Mistake:
    return mistake("verify_and_rollback", name, kept=kept)


def speculates(name: str, says: str = "", **parts: Any) -> Mistake:
    return mistake("speculate", name, says, **parts)


_buffers: dict = {}


def shared(style, *form):
    if form not in _buffers:
        _buffers[form] = style.allocate(*form)
    return _buffers[form]


def one(style, *form):
    return style.allocate(*form)[:1] * 2


def asserts(message: str):
    raise AssertionError(message)


def matches(style, drafts, choices):
    return [draft == choice for draft, choice in zip(drafts, choices)]


def anew(cache, length):
    cache.keys, cache.values = cache.keys.clone(), cache.values.clone()


def clear(cache, length):
    with torch.no_grad():
        cache.keys[:, length:] = 0
        cache.values[:, length:] = 0


def row_after(style, drafts, choices):
    return style.leading(drafts, choices[1:])


MISTAKES = [
    append("two caches share their tensors", tensors=shared),
    append("one tensor for both", "keys and values are the same", tensors=one),
    append("the form is fixed", "wrong shape, dtype or device",
           tensors=lambda style, heads, slots, *rest: style.allocate(2, slots, 4, rest[1], torch.float64)),
    append("another max_length", tensors=lambda style, heads, slots, *rest: style.allocate(heads, slots + 1, *rest)),
    append("keys and values are exchanged", got=lambda keys, values: (values, keys)),
    append("k into both tensors", "keys and values are the same", stored=lambda k, v: (k, k)),
    append("read() copies", got=lambda keys, values: (keys.clone(), values.clone())),
    append("read() returns other slots than those in use", used=lambda length, slots: slots),
    append("every append begins at slot 0", begin=lambda length, new: 0),
    append("length is raised before the slots are written", begin=lambda length, new: length + new,
           full=lambda length, new, slots: length + 2 * new > slots),
    append("append does not count its slots", counted=lambda length, new: length + 1),
    append("refuses with an assert", "AssertionError: the cache is full, not ValueError", refuse=asserts),
    append("refuses one slot too early", "the last slot cannot be used", full=lambda length, new, slots: length + new >= slots),
    append("a full cache writes before it raises", late=True),
    rollback("rollback does nothing", left=lambda to, length: length),
    rollback("reset instead of rollback", left=lambda to, length: 0),
    rollback("rollback(n) drops n slots", left=lambda to, length: length - to),
    rollback("rollback is off by one: it keeps", left=lambda to, length: to + 1),
    rollback("rollback is off by one: it drops", left=lambda to, length: max(0, to - 1)),
    rollback("rollback allocates new tensors", after=anew),
    rollback("rollback writes to the tensors", after=clear),
    rollback("any length is allowed", "raises nothing", allowed=lambda to, length: True),
    rollback("a negative length is allowed", "raises nothing", allowed=lambda to, length: to <= length),
    rollback("refuses with an assert", "AssertionError: no such length, not ValueError", refuse=asserts),
    emits("all matches are counted", lambda *case: sum(matches(*case))),
    emits("accepts up to the last mismatch", lambda style, d, c: max((i for i, m in enumerate(matches(style, d, c)) if not m), default=len(d))),
    emits("accepts every draft", lambda style, d, c: len(d)),
    emits("accepts no draft", lambda style, d, c: 0),
    emits("accepts all drafts or none", lambda *case: len(case[1]) if all(matches(*case)) else 0),
    emits("a draft is accepted that the target chose somewhere else", lambda style, d, c: style.leading([x in c for x in d], [True] * len(d))),
    emits("compares with the wrong row", row_after),
    gives("no bonus token", lambda d, c, n: [*d[:n], c[n]][: len(d)]),
    gives("no correction token", lambda d, c, n: d[:n]),
    gives("emits the rejected token", lambda d, c, n: [*d, c[-1]][: n + 1]),
    gives("the correction is the choice after the rejected draft", lambda d, c, n: [*d[:n], c[min(n + 1, len(d))]]),
    gives("the correction is one row too early", lambda d, c, n: [*d[:n], c[n - 1]]),
    gives("only the correction is returned", lambda d, c, n: [c[n]]),
    mistake("verify_and_rollback", "the last committed token is not in the forward", fed=lambda last, drafts: drafts,
            emitted=lambda d, c, n: d[:n], kept=lambda start, n, k: start + n),
    keeps("no rollback", lambda start, n, k: None),
    keeps("reset instead of rollback", lambda start, n, k: 0),
    keeps("rollback is off by one: a rejected draft", lambda start, n, k: start + 2 + n),
    keeps("rollback is off by one: an accepted draft", lambda start, n, k: start + n),
    keeps("rollback got the number of dropped slots", lambda start, n, k: k - n),
    keeps("rollback to the prefix", lambda start, n, k: start + 1),
    keeps("as many slots are dropped as drafts were accepted", lambda start, n, k: start + 1 + k - n),
    speculates("k is always 4", "tokens are drafted", count=lambda k: 4),
    speculates("feeds the newest token only", "misses the last drafted token", lacking=lambda text, cache: text[-1:]),
    speculates("feeds the whole text again", "the draft was fed", lacking=lambda text, cache: [cache.rollback(0), text][1]),
    speculates("takes the first row", "the drafts are not what the draft puts after the text", picked=lambda logits: int(logits[0].argmax())),
    speculates("one cache for both", "the target", caches=lambda target, draft: (target, target)),
    speculates("the caches are exchanged", "the target does not see the text", caches=lambda target, draft: (draft, target)),
    speculates("the draft's cache is not rolled back", "the draft's cache", draft_kept=lambda cache, tokens, new: None),
    speculates("the draft's cache keeps one rejected draft", "the draft's cache is not rolled back far enough",
               draft_kept=lambda cache, tokens, new: min(cache.length, len(tokens) + len(new))),
    speculates("the draft's cache is emptied", "the draft's cache drops too much", draft_kept=lambda cache, tokens, new: 0),
    speculates("the draft's cache goes back to the old text", "the draft's cache drops too much",
               draft_kept=lambda cache, tokens, new: len(tokens) - 1),
    speculates("accepts the draft's own argmax", "the draft's own argmax", accepted=lambda style, d, c: len(d)),
    speculates("the whole text is returned", returned=lambda tokens, new: tokens + new),
]  # fmt: skip

MATRIX = Matrix("05-kv-rollback", STYLES, tuple(MISTAKES))
