"""Weighted sums of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resumerge.native import Vector, calls

if TYPE_CHECKING:
    from torch import Tensor


def weighted_sum(terms: Sequence[Any], weights: Sequence[float]) -> Any:
    """``sum(w_i * x_i)``; each product and each sum is rounded to float32, in the order given.

    Args:
        terms: vectors of one length; torch's are overwritten, and the first one is the result.
    """
    if isinstance(terms[0], Vector):
        return calls.weighted_sum(terms, weights)
    total = terms[0].mul_(weights[0])
    for term, weight in zip(terms[1:], weights[1:]):
        total.add_(term.mul_(weight))  # not `alpha`, which rounds once, or twice at the end
    return total


def sum_vectors(terms: Sequence[Any]) -> Any:
    """The sum of vectors, in the order given; torch's is computed in the first one."""
    if isinstance(terms[0], Vector):
        return weighted_sum(terms, [1.0] * len(terms))
    total = terms[0]
    for term in terms[1:]:
        total.add_(term)
    return total


def add_scaled(base: Any, change: Any, scale: float = 1.0) -> Any:
    """``base + scale * change``, rounded after each operation; torch's vectors are overwritten."""
    return weighted_sum([base, change], [1.0, scale])


def add_scaled_sum(base: Any, changes: Sequence[Any], scale: float) -> Any:
    """``base + scale * sum(x_i)``, rounded after each operation; torch's are overwritten."""
    if isinstance(base, Vector):
        ones = [1.0] * len(changes)
        return calls.combine(base, changes, [None] * len(changes), ones, ones, 0, scale)
    return add_scaled(base, sum_vectors(changes), scale)


def zeros_like(vector: Tensor) -> Tensor:
    """A vector of zeros, of the same shape and dtype."""
    import torch

    return torch.zeros_like(vector)
