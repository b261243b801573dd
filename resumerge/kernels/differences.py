"""Differences between models: task vectors, and how much they vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from resumerge.native import Vector, calls, energies


def subtract_base(inputs: list[Any], base: int | None) -> list[Any]:
    """The task vectors ``x - x_base`` of the inputs that are not the base; torch's in place.

    Args:
        inputs: flat vectors of one length.
        base: the base's place among them; None for no base, then the inputs are returned.
    """
    if base is None:
        return inputs
    others = [x for i, x in enumerate(inputs) if i != base]
    if isinstance(inputs[base], Vector):
        return [x.less(inputs[base]) for x in others]
    return [x.sub_(inputs[base]) for x in others]


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
    return squares.masked_fill_(
        squares.isnan(), math.nan
    )  # one bit pattern for NaN: the bits are keys of a selection


def count_nonzero(values: Any) -> int:
    """The number of elements that are not 0; NaN counts."""
    if isinstance(values, Vector):
        return len(values) - calls.equal_count(values, calls.MAGNITUDE, 0)
    return int(values.count_nonzero())
