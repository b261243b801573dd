"""RAM: elements by how many models changed them (https://arxiv.org/abs/2601.13572).

A model changed an element where the magnitude of its task vector is above `epsilon`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.kernels.masks.apply import equal_to, zero_small
from resumerge.kernels.sums import add_scaled, sum_vectors
from resumerge.native import Vector, elements

if TYPE_CHECKING:
    from torch import Tensor


def add_mean_change(
    base: Any, deltas: Sequence[Any], epsilon: float, factors: Sequence[float]
) -> Any:
    """``base + sum(f_i * d_i) / c`` over the c models that changed an element.

    Args:
        base: what the vectors `deltas` are differences from; torch's vectors are overwritten.
        factors: one for each model, on the elements that it alone changed.
    """
    if isinstance(base, Vector):
        return elements.add_mean_change(base, deltas, epsilon, factors)
    import torch

    large = [zero_small(delta, epsilon) for delta in deltas]
    counts = sum_vectors([_changed(delta) for delta in large])
    alone = counts == 1.0
    total = sum_vectors([d.mul_(torch.where(alone, f, 1.0)) for d, f in zip(large, factors)])
    return add_scaled(base, total.div_(counts.clamp_min_(1.0)))


def count_changes(deltas: Sequence[Any], epsilon: float) -> np.ndarray:
    """For each model, how many elements it changed, and how many of these no other model changed.

    Returns:
        int64, shape ``(len(deltas), 2)``.
    """
    if isinstance(deltas[0], Vector):
        return elements.count_changes(deltas, epsilon)
    changed = [_changed(zero_small(delta, epsilon)) for delta in deltas]
    alone = equal_to(sum_vectors([changed[0].clone(), *changed[1:]]), 1.0)
    return np.array(
        [[int(flags.count_nonzero()), int((flags * alone).count_nonzero())] for flags in changed]
    )


def _changed(delta: Tensor) -> Tensor:
    """1 where an element is not zero, else 0 (NaN too)."""
    return delta.sign().nan_to_num_(0.0).abs_()
