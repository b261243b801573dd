"""Sparse task vectors, combined and added to the base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resumerge.kernels.consensus import sign_consensus_sum
from resumerge.kernels.masks.apply import apply_mask
from resumerge.kernels.sums import add_scaled, sum_vectors
from resumerge.native import Vector, calls


def add_task_vectors(
    base: Any,
    deltas: Sequence[Any],
    masks: Sequence[Any],
    factors: Sequence[float],
    weights: Sequence[float],
    consensus: bool,
    normalize: bool,
    scale: float,
) -> Any:
    """``base + scale * sum(a_i * f_i * m_i * d_i)``.

    Args:
        base: what the vectors `deltas` are differences from; torch's vectors are overwritten.
        masks: for each vector uint8 of 0 and 1, for the compiled kernels also what
            `Selection.mask_or_threshold` returns; None keeps all. Masked elements count as 0,
            NaN too.
        factors: f_i, one for each vector.
        weights: w_i, one for each vector, in the divisor.
        consensus: a_i is 1 only where the sign is that of the sum of all terms; see
            `sign_consensus_sum`.
        normalize: under consensus, divide by ``sum(a_i * w_i)``.
    """
    if isinstance(base, Vector):
        flags = calls.CONSENSUS * consensus | calls.NORMALIZE * normalize
        return calls.combine(base, deltas, masks, factors, weights, flags, scale)
    for delta, mask, factor in zip(deltas, masks, factors):
        if mask is not None:
            apply_mask(delta, mask)
        delta.mul_(factor)
    mixed = sign_consensus_sum(deltas, weights, normalize) if consensus else sum_vectors(deltas)
    return add_scaled(base, mixed, scale)
