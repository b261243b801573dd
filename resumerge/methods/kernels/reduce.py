"""Reductions of one block, in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def dots(a: Tensor, b: Tensor) -> tuple[float, float, float]:
    """``sum(a * a), sum(b * b), sum(a * b)`` of two float32 vectors, in float64."""
    wide_a, wide_b = a.double(), b.double()
    pairs = ((wide_a, wide_a), (wide_b, wide_b), (wide_a, wide_b))
    return tuple(float(torch.dot(x, y)) for x, y in pairs)  # type: ignore[return-value]


def absolute_sum(values: Tensor) -> float:
    """``sum(abs(values))`` of a float32 vector, in float64."""
    return float(values.abs().sum(dtype=torch.float64))
