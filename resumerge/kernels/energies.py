"""SCE: task vectors weighted by their energies (https://arxiv.org/abs/2408.07990)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resumerge.kernels.consensus import keep_agreeing, majority_sign
from resumerge.kernels.masks.apply import apply_mask
from resumerge.kernels.reductions import gram
from resumerge.kernels.sums import add_scaled, sum_vectors
from resumerge.native import Vector, energies

_SMALLEST_DIVISOR = 1e-6


def sums_of_squares(deltas: Sequence[Any], mask: np.ndarray | None) -> np.ndarray:
    """``sum(d**2)`` of each vector over the elements that a mask keeps: float64, shape (n,).

    Args:
        mask: uint8 of 0 and 1; None keeps all. torch's vectors are masked in place.
    """
    if isinstance(deltas[0], Vector):
        return np.array([energies.sum_of_squares(delta, mask) for delta in deltas])
    return np.array([gram([delta])[0, 0] for delta in _masked(deltas, mask)])


def add_majority_mean(
    base: Any, deltas: Sequence[Any], mask: np.ndarray | None, weights: Sequence[float]
) -> Any:
    """``base + sum(a_i * w_i * d_i) / sum(a_i * w_i)``.

    a_i is 1 where d_i has the sign of ``sum(d_i)`` (plus, for a sum of zero), else 0.

    Args:
        base: what the vectors `deltas` are differences from; torch's vectors are overwritten.
        mask: uint8 of 0 and 1; None keeps all. Masked elements count as 0, NaN too.
        weights: one for each vector, at least 0.
    """
    if isinstance(base, Vector):
        return energies.add_majority_mean(base, deltas, mask, weights)
    terms = _masked(deltas, mask)
    signs = majority_sign(sum_vectors([terms[0].clone(), *terms[1:]]))
    kept = [keep_agreeing(term, signs) for term in terms]
    divisor = sum_vectors([term.sign().mul_(weight) for term, weight in zip(kept, weights)])
    mixed = sum_vectors([term.mul_(weight) for term, weight in zip(kept, weights)])
    return add_scaled(base, mixed.div_(divisor.clamp_min_(_SMALLEST_DIVISOR)).mul_(signs))


def _masked(deltas: Sequence[Any], mask: np.ndarray | None) -> Sequence[Any]:
    return deltas if mask is None else [apply_mask(delta, mask) for delta in deltas]
