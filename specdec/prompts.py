"""What a caller may give as a prompt, and how it becomes ids that are known to fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from specdec.models.transformer import Transformer

Prompt = str | Sequence[int] | Tensor


def is_batch(prompt: Prompt | Sequence[Prompt]) -> bool:
    """Whether it is several prompts: a tensor (B, T), or a list of lists, tensors or texts."""
    if isinstance(prompt, Tensor):
        return prompt.dim() == 2
    if isinstance(prompt, str) or not isinstance(prompt, Sequence) or not prompt:
        return False
    first = prompt[0]
    return isinstance(first, str | Sequence) or (isinstance(first, Tensor) and first.dim() > 0)


def batch_ids(target: Transformer, prompt: Prompt | Sequence[Prompt]) -> list[list[int]]:
    """The ids of every row of a batch, or of the one prompt."""
    texts = [prompt_ids(target, text) for text in (prompt if is_batch(prompt) else [prompt])]
    if not texts:
        raise ValueError("a batch needs at least one prompt, got none")
    return texts


def prompt_ids(target: Transformer, prompt: Prompt) -> list[int]:
    """The prompt as a new list of ids, checked against the target's vocabulary."""
    if isinstance(prompt, str):
        if target.tokenizer is None:
            raise ValueError("a text prompt needs a target with a tokenizer; give ids")
        prompt = target.tokenizer.encode(prompt)
    ids = whole_ids("prompt ids", prompt, target.config.vocab_size)
    if not ids:
        raise ValueError("the prompt must be a list of at least one token, got none")
    return ids


def stop_ids(target: Transformer, stop_tokens: Collection[int] | Tensor) -> frozenset[int]:
    """Raises ValueError if one lies outside the target's vocabulary: it would never end a text."""
    ids = sorted(stop_tokens) if isinstance(stop_tokens, set | frozenset) else stop_tokens
    return frozenset(whole_ids("stop tokens", ids, target.config.vocab_size))


def whole_ids(name: str, ids: Sequence[int] | Tensor, vocab_size: int) -> list[int]:
    """The ids (a list, a tensor (T,)) as a new list of numbers.

    Raises:
        ValueError: if they are no whole numbers in [0, vocab_size).
    """
    try:
        found = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError, LookupError) as error:  # whatever PyTorch finds wrong with it
        raise ValueError(f"{name} must be a list of whole numbers in [0, {vocab_size}), got {ids!r:.80}") from error
    if found.dim() != 1:
        raise ValueError(f"{name} must be a list, one number a token, got shape {tuple(found.shape)}")
    numbers = found.tolist()
    if not all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number < vocab_size for number in numbers):
        raise ValueError(f"{name} must be whole numbers in [0, {vocab_size}), got {numbers[:8]} …")
    return numbers
