"""Differences between models: task vectors, and how much they vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resumerge.methods.method import Work
from resumerge.native import Vector

if TYPE_CHECKING:
    from torch import Tensor


def less_base(work: Work, inputs: list[Any]) -> list[Any]:
    """The task vectors ``x - base`` of the inputs that are not the base; torch's in place.

    Without a base model, the inputs themselves.
    """
    if work.base is None:
        return inputs
    base = inputs[work.base]
    if isinstance(base, Vector):
        return [Vector(inputs[i].data, inputs[i].dtype, base) for i in work.others]
    return [inputs[i].sub_(base) for i in work.others]


def variance(vectors: Sequence[Tensor]) -> Tensor:
    """The population variance of each element over float32 vectors; exactly 0 where all are equal.

    Welford's recurrence, which needs no sum of squares (https://doi.org/10.2307/1266577).
    """
    import torch

    mean = vectors[0].clone()
    squares = torch.zeros_like(mean)
    for count, vector in enumerate(vectors[1:], start=2):
        change = vector - mean
        mean.add_(change, alpha=1.0 / count)
        squares.addcmul_(change, vector - mean)
    return squares.div_(len(vectors))
