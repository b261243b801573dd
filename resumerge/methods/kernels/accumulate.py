"""Weighted sums of vectors, in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def weighted_sum(terms: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """``sum(w_i * x_i)`` of float32 vectors, in the order given, in the first of them."""
    total = terms[0].mul_(weights[0])
    for term, weight in zip(terms[1:], weights[1:]):
        total.add_(term, alpha=weight)
    return total


def zeros_like(vector: Tensor) -> Tensor:
    """A vector of zeros to add to."""
    return torch.zeros_like(vector)
