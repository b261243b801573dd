"""Weighted sums of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resumerge.native import Vector, calls

if TYPE_CHECKING:
    from torch import Tensor


def weighted_sum(terms: Sequence[Any], weights: Sequence[float]) -> Any:
    """``sum(w_i * x_i)``, each product and each sum rounded to float32, in the order given.

    Args:
        terms: vectors of one length; torch's are used up, and the first of them is the result.
    """
    if isinstance(terms[0], Vector):
        return calls.weighted_sum(terms, weights)
    total = terms[0].mul_(weights[0])
    for term, weight in zip(terms[1:], weights[1:]):
        total.add_(term.mul_(weight))  # not `alpha`, which rounds once, or twice at the end
    return total


def plain_sum(terms: Sequence[Any]) -> Any:
    """The sum of vectors; torch's in the first of them."""
    if isinstance(terms[0], Vector):
        return weighted_sum(terms, [1.0] * len(terms))
    total = terms[0]
    for term in terms[1:]:
        total.add_(term)
    return total


def added(base: Any, change: Any, scale: float = 1.0) -> Any:
    """``base + scale * change``, rounded after each; torch's vectors are used up."""
    return weighted_sum([base, change], [1.0, scale])


def sum_added(base: Any, changes: Sequence[Any], scale: float) -> Any:
    """``base + scale * sum(x_i)``, rounded after each; torch's vectors are used up."""
    if isinstance(base, Vector):
        ones = [1.0] * len(changes)
        return calls.combine(base, changes, [None] * len(changes), ones, ones, 0, scale)
    return added(base, plain_sum(changes), scale)


def zeros_like(vector: Tensor) -> Tensor:
    """A vector of zeros to add to."""
    import torch

    return torch.zeros_like(vector)
