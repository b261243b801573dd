"""Differences between models: task vectors, and how much they vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from resumerge.methods.base import TensorContext
from resumerge.native import Vector, calls, energies


def less_base(work: TensorContext, inputs: list[Any]) -> list[Any]:
    """The task vectors ``x - base`` of the inputs that are not the base; torch's in place.

    Without a base model, the inputs themselves.
    """
    if work.base is None:
        return inputs
    base = inputs[work.base]
    if isinstance(base, Vector):
        return [inputs[i].less(base) for i in work.others]
    return [inputs[i].sub_(base) for i in work.others]


def variance(vectors: Sequence[Any]) -> Any:
    """The population variance of each element over vectors that have one base, or none.

    Exactly 0 where all are equal. Welford's recurrence, which needs no sum of squares
    (https://doi.org/10.2307/1266577), each operation rounded to float32.
    """
    if isinstance(vectors[0], Vector):
        return energies.variance(vectors)
    import torch

    mean = vectors[0].clone()
    squares = torch.zeros_like(mean)
    for count, vector in enumerate(vectors[1:], start=2):
        change = vector - mean
        mean.add_(change * (1.0 / count))
        squares.add_(change.mul_(vector - mean))
    squares.div_(len(vectors))
    return squares.masked_fill_(squares.isnan(), math.nan)  # one NaN for all: it is a key


def count_nonzero(values: Any) -> int:
    """How many elements of a vector are not 0; NaN is not."""
    if isinstance(values, Vector):
        return len(values) - calls.equal_count(values, calls.MAGNITUDE, 0)
    return int(values.count_nonzero())
