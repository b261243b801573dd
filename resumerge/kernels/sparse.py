"""Task vectors made sparse, combined, and added to the base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resumerge.kernels.accumulate import added, plain_sum
from resumerge.kernels.consensus import agreeing_sum
from resumerge.kernels.masks.drop import keep_only
from resumerge.native import Vector, calls


def combined(
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
        base: what the vectors `deltas` are differences from; torch's vectors are used up.
        masks: of bytes, or for vectors of the compiled kernels what `Selection.rule` says; what is
            not kept is zero whatever it was. None keeps all.
        factors: on the elements of each.
        weights: of each, in the divisor.
        consensus: a_i is 1 only where the sign is that of the sum of all terms; see `agreeing_sum`.
        normalize: under consensus, divide by ``sum(a_i * w_i)``.
    """
    if isinstance(base, Vector):
        flags = calls.CONSENSUS * consensus | calls.NORMALIZE * normalize
        return calls.combine(base, deltas, masks, factors, weights, flags, scale)
    for delta, mask, factor in zip(deltas, masks, factors):
        if mask is not None:
            keep_only(delta, mask)
        delta.mul_(factor)
    mixed = agreeing_sum(deltas, weights, normalize) if consensus else plain_sum(deltas)
    return added(base, mixed, scale)
