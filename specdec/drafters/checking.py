"""What `generate` asks of a drafter: one that breaks a promise of `specdec.drafters.base` gets a sentence before anything is lost."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdec.config import check_whole
from specdec.device import on_host
from specdec.drafters.base import Drafter, Proposer
from specdec.tree import TokenTree

STRICT_ROUNDS = 4  # in which the whole q of a drafter that is new here is looked at; math.inf: always, for whoever writes one
SMALL = 4096  # numbers of a q that may be looked at in every round: it takes less time than anything else in it


def check_drafter(drafter: object) -> None:
    """Raises ValueError if it is no `Drafter`: a name or a class in place of one, or something that lacks a part."""
    if isinstance(drafter, type):
        raise ValueError(f"the drafter must be an object, got the class {drafter.__name__}: make one of it, as in PromptLookup(3, 8)")
    _require("drafter", drafter, ["start"], ["max_nodes"])
    check_whole("the drafter's max_nodes", drafter.max_nodes, 0)


def check_proposer(drafter: object, proposer: object) -> None:
    """Raises ValueError if `drafter.start` returned something that is no `Proposer`."""
    _require(f"proposer of {type(drafter).__name__}", proposer, ["propose", "observe"])


def _require(role: str, found: object, methods: list[str], values: list[str] | None = None) -> None:
    names = [*methods, *(values or [])]
    missing = [name for name in names if not hasattr(found, name) or (name in methods and not callable(getattr(found, name)))]
    if missing:
        raise ValueError(f"the {role} must have {' and '.join(names)}, got {found!r:.80} without {' and '.join(missing)}")


def check_layers(drafter: Drafter, layers: int) -> Sequence[int]:
    """The layers of a target of so many that the drafter reads. Raises ValueError if there is no such layer."""
    asked = getattr(drafter, "layers", ())
    if not isinstance(asked, Sequence) or not all(isinstance(layer, int) and 0 <= layer < layers for layer in asked):
        shown = tuple(asked) if isinstance(asked, Sequence) else asked
        raise ValueError(f"the drafter reads the target's layers {shown}, which must lie in [0, {layers})")
    return asked


def begin(drafter: Drafter, *arguments: Any) -> Proposer:
    """`drafter.start`, whose result is known to be a `Proposer`."""
    proposer = drafter.start(*arguments)
    check_proposer(drafter, proposer)
    return proposer


@dataclass
class Acquaintance:
    """How many trees with a q `generate` has had from a drafter."""

    trees: int = 0

    @property
    def is_new(self) -> bool:
        return self.trees < STRICT_ROUNDS


_known: dict[int, Acquaintance] = {}  # by the id of a drafter, for as long as it lives


def acquaintance(drafter: Drafter) -> Acquaintance:
    """The same object whenever it is asked for the same drafter; a new one for a drafter to which no weak reference is possible."""
    if id(drafter) not in _known:
        try:
            weakref.finalize(drafter, _known.pop, id(drafter), None).atexit = False
        except TypeError:
            return Acquaintance()
        _known[id(drafter)] = Acquaintance()
    return _known[id(drafter)]


def check_proposal(
    tree: TokenTree,
    limit: int,
    max_nodes: int | None,
    vocab_size: int,
    device: torch.device | None = None,
    strict: bool = False,
) -> None:
    """Raises ValueError if a tree is not what `Proposer.propose` and `Drafter.max_nodes` promise.

    Without `strict` nothing waits for a device, and nothing is read that is as large as a vocabulary: of values, the ids and their q are
    checked where they lie on the CPU, and a small q as a whole. With it every row of q that tokens were drawn from is.

    Args:
        device: the target's; None: any.
    """
    if not isinstance(tree, TokenTree) or tree.tokens.dim() != 1 or (tree.q is not None and tree.q.dim() != 2):
        raise ValueError(f"a proposer must return a TokenTree without batch axes, got {tree!r:.80}")
    places = {tree.tokens.device} | ({tree.q.device} if tree.q is not None else set())
    if device is not None and places != {device}:
        raise ValueError(f"a tree's tokens and q must lie on {device} as the target does, got {' and '.join(sorted(map(str, places)))}")
    if max_nodes is not None and len(tree) > max_nodes:
        raise ValueError(f"the drafter's max_nodes is {max_nodes}, and its proposer made a tree of {len(tree)} nodes")
    if tree.depth > limit:
        raise ValueError(f"the budget has room for a path of {limit} tokens, and the proposer's tree is {tree.depth} deep")
    if tree.q is not None and tree.q.shape[-1] != vocab_size:
        raise ValueError(f"the tree's q is over {tree.q.shape[-1]} tokens, and the target's vocabulary has {vocab_size}")
    here = on_host(tree.tokens.device)
    if here and any(not 0 <= token < vocab_size for token in tree.tokens.tolist()):
        raise ValueError(f"a drafted id must lie in [0, {vocab_size}), got {tree.tokens.tolist()}")
    if tree.q is None or not len(tree):
        return
    if strict or (here and tree.q.numel() <= SMALL):
        _check_rows(tree.q, sorted({parent + 1 for parent in tree.parents.tolist() if parent >= -1}))
    if strict or here:
        _check_drawn(tree)


def _check_rows(q: Tensor, rows: list[int]) -> None:
    """A row that tokens were drawn from is a distribution, or all 0 (point masses), or all NaN (numbers that have gone bad)."""
    used = q if len(rows) == len(q) else q[: len(rows)] if rows == list(range(len(rows))) else q[rows]
    wide = used.float() if used.dtype in (torch.float16, torch.bfloat16) else used
    allowed = 1e-2 if wide is not used else 1e-4  # what rounding may do to the sum of a distribution
    for row, total, least in zip(rows, wide.sum(-1).tolist(), wide.amin(-1).tolist(), strict=True):
        if least < 0:
            raise ValueError(f"row {row} of q has {least:.6g} at token {int(q[row].argmin())}; a probability must be >= 0")
        if total != total and not q[row].isnan().all():
            raise ValueError(f"row {row} of q has a NaN at token {int(q[row].isnan().int().argmax())}; expected numbers that sum to 1")
        if abs(total - 1) > allowed and total != 0:
            raise ValueError(
                f"row {row} of q sums to {total:.6g}; what tokens are drawn from must sum to 1 "
                "(a row of zeros means that they were not drawn)"
            )


def _check_drawn(tree: TokenTree) -> None:
    """Every token can have been drawn from the row that is declared for it: it has a probability there, which no sibling took before.

    A row of zeros declares point masses, and so does one whose tokens have all been tried (`verify_tree`)."""
    parents, tokens = tree.parents.tolist(), tree.tokens.tolist()
    chances = tree.q[tree.parents + 1, tree.tokens].tolist()
    tried: dict[int, set[int]] = {}  # tokens of the siblings so far
    for parent, token, chance in zip(parents, tokens, chances, strict=True):
        elder = tried.setdefault(parent, set())
        taken = tree.siblings == "without_replacement" and token in elder
        if parent >= -1 and (chance <= 0 or (taken and chance == chance)):
            gone = list(elder) if tree.siblings == "without_replacement" else []
            left = tree.q[parent + 1].index_fill(0, torch.tensor(gone, dtype=torch.long, device=tree.q.device), 0)
            if chance < 0 or left.any():
                reason = "an earlier sibling took it, and siblings are drawn without replacement" if taken else "it must be > 0"
                found = f"row {parent + 1} of q has {0 if taken else chance:.6g} for token {token}"
                raise ValueError(f"{found}, which was drafted from it: {reason}")
        elder.add(token)
