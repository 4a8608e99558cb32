"""Every drafter in every form, for the tests that all of them must pass: name → (target → drafter). Heads and drafts are random."""

from tiny import tiny_model

from specdec.drafters import Combine, DraftModel, Eagle, EagleHead, Lookahead, Medusa, MedusaHeads, PromptLookup
from specdec.tree import full_tree


def draft_of(target):
    """A small random model beside the target, on its device."""
    return tiny_model(2, target.config.vocab_size, layers=1, scale=1.5, dtype=target.dtype).to(target.device)


def eagle_1(target):
    return EagleHead.random(target, version=1, scale=0.5)


def eagle_3(target):
    """It scores every other token of the vocabulary."""
    ids = range(0, target.config.vocab_size, 2)
    return EagleHead.random(target, version=3, layers=range(target.config.layers), ids=list(ids), scale=0.5)


def medusa(target):
    return MedusaHeads.random(target, heads=3, scale=1.5)


DRAFTERS = {
    "draft chain": lambda target: DraftModel(draft_of(target), 3),
    "draft tree": lambda target: DraftModel(draft_of(target), tree=full_tree([2, 1])),
    "draft tree, iid": lambda target: DraftModel(draft_of(target), tree=full_tree([2, 1]), siblings="iid"),
    "truncated": lambda target: DraftModel(target.truncated(1), 3),
    "itself": lambda target: DraftModel(target, 3),
    "medusa chain": lambda target: Medusa(medusa(target), full_tree([1, 1, 1])),
    "medusa tree": lambda target: Medusa(medusa(target), [-1, -1, 0, 0, 1, 2]),
    "eagle-1 chain": lambda target: Eagle(eagle_1(target), tree=full_tree([1, 1])),
    "eagle-1 tree": lambda target: Eagle(eagle_1(target), tree=full_tree([1, 2])),
    "eagle-2 chain": lambda target: Eagle(eagle_1(target), depth=3, top_k=1, budget=3),
    "eagle-2 tree": lambda target: Eagle(eagle_1(target), depth=3, top_k=2, budget=6),
    "eagle-3 chain": lambda target: Eagle(eagle_3(target), tree=full_tree([1, 1])),
    "eagle-3 tree": lambda target: Eagle(eagle_3(target), depth=3, top_k=2, budget=6),
    "lookahead chain": lambda target: Lookahead(window=3, ngram=2, pool=0),  # Jacobi decoding
    "lookahead tree": lambda target: Lookahead(window=2, ngram=3, pool=1),
    "prompt lookup chain": lambda target: PromptLookup(2, 4),
    "prompt lookup tree": lambda target: PromptLookup(1, 3, candidates=2),
    "combined chains": lambda target: Combine(DraftModel(draft_of(target), 2), PromptLookup(2, 3)),
    "combined trees": lambda target: Combine(Eagle(eagle_3(target), depth=2, top_k=2, budget=4), PromptLookup(1, 2)),
}
