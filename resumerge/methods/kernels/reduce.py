"""Reductions of one block, in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def dot(a: Tensor, b: Tensor) -> float:
    """``sum(a * b)`` of two float32 vectors, in float64."""
    wide = a.double()
    return float(torch.dot(wide, wide if a is b else b.double()))


def absolute_sum(values: Tensor) -> float:
    """``sum(abs(values))`` of a float32 vector, in float64."""
    return float(values.abs().sum(dtype=torch.float64))
