"""Whether this machine keeps the promise of a fixed shape: a row's bits do not depend on where in the shape it stands.

A kernel cuts its rows into tiles, and a tile of another height may add in another order. FBGEMM's packed kernel, for one, sums the
last rows of 7, 14, 31, 32 and 37 differently, and MKL's float32 product the fifth and sixth of 6. So a width is tried before it is used.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch

from specdec.cache import KVCache
from specdec.models.transformer import Transformer

_held: WeakKeyDictionary[Transformer, set[tuple[int, int]]] = WeakKeyDictionary()


def check_width(model: Transformer, cache: KVCache, width: int) -> None:
    """Tries the width on an empty cache, and leaves it empty.

    Raises:
        ValueError: if a row's logits depend on its place; it names widths above that hold.
    """
    tried = _held.setdefault(model, set())
    if (width, cache.max_length) in tried:
        return
    if not _holds(model, cache, width):
        larger = [w for w in range(width + 1, width + 9) if _holds(model, model.new_cache(w + 1), w)]
        raise ValueError(
            f"in a forward of {width} tokens this machine rounds some rows differently from others, so that width = {width} would "
            f"not keep the text; choose another, such as {larger[:3]}"
        )
    tried.add((width, cache.max_length))


@torch.inference_mode()
def _holds(model: Transformer, cache: KVCache, width: int) -> bool:
    """One token as the child of a root, in every other row of a tree at once, and then decoded plainly in row 0."""
    root, child, device = 0, 1, model.device
    tokens = torch.full((1, width), child, device=device)
    tokens[0, 0] = root
    mask = torch.eye(width, dtype=torch.bool, device=device)
    mask[:, 0] = True
    positions = torch.ones(width, dtype=torch.long, device=device)
    positions[0] = 0
    siblings = model(tokens, cache, positions, mask, fixed=True).logits[0, 1:]
    cache.rollback(1)
    plain = model(torch.full_like(tokens, child), cache, fixed=True).logits[0, 0]
    cache.rollback(0)
    return bool((siblings == plain).all())
