"""Elements that few models changed, or many.

A model changed an element where its task vector is larger than `epsilon`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.kernels.accumulate import added, plain_sum
from resumerge.kernels.masks.drop import equals, keep_above
from resumerge.native import Vector, elements

if TYPE_CHECKING:
    from torch import Tensor


def averaged_changes(
    base: Any, deltas: Sequence[Any], epsilon: float, factors: Sequence[float]
) -> Any:
    """``base + sum(f_i * d_i) / c`` over the c models that changed an element.

    Args:
        base: what the vectors `deltas` are differences from; torch's vectors are used up.
        factors: on what a model changed alone; on what others changed, too, the factor is 1.
    """
    if isinstance(base, Vector):
        return elements.averaged_changes(base, deltas, epsilon, factors)
    import torch

    large = [keep_above(delta, epsilon) for delta in deltas]
    counts = plain_sum([_changed(delta) for delta in large])
    alone = counts == 1.0
    total = plain_sum([d.mul_(torch.where(alone, f, 1.0)) for d, f in zip(large, factors)])
    return added(base, total.div_(counts.clamp_min_(1.0)))


def changed_counts(deltas: Sequence[Any], epsilon: float) -> np.ndarray:
    """For each model, how many elements it changed, and how many of these it changed alone.

    Returns:
        int64, shape ``(len(deltas), 2)``.
    """
    if isinstance(deltas[0], Vector):
        return elements.changed_counts(deltas, epsilon)
    changed = [_changed(keep_above(delta, epsilon)) for delta in deltas]
    alone = equals(plain_sum([changed[0].clone(), *changed[1:]]), 1.0)
    return np.array(
        [[int(flags.count_nonzero()), int((flags * alone).count_nonzero())] for flags in changed]
    )


def _changed(delta: Tensor) -> Tensor:
    """1 where an element is not zero, else 0 (NaN too)."""
    return delta.sign().nan_to_num_(0.0).abs_()
