"""Task vectors weighted by their energies, among the elements that vary most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resumerge.kernels.accumulate import added, plain_sum
from resumerge.kernels.consensus import agreeing, majority
from resumerge.kernels.masks.drop import keep_only
from resumerge.kernels.reduce import gram
from resumerge.native import Vector, energies

_SMALLEST_DIVISOR = 1e-6


def squares(deltas: Sequence[Any], mask: np.ndarray | None) -> np.ndarray:
    """``sum(d**2)`` of each vector, over what a mask of bytes keeps: float64; None keeps all.

    torch's vectors lose what is not kept.
    """
    if isinstance(deltas[0], Vector):
        return np.array([energies.squares(delta, mask) for delta in deltas])
    return np.array([gram([delta])[0, 0] for delta in _masked(deltas, mask)])


def weighted_majority(
    base: Any, deltas: Sequence[Any], mask: np.ndarray | None, weights: Sequence[float]
) -> Any:
    """``base + sum(a_i * w_i * d_i) / sum(a_i * w_i)``.

    a_i is 1 where d_i has the sign of ``sum(d_i)`` (plus, for a sum of zero), else 0.

    Args:
        base: what the vectors `deltas` are differences from; torch's vectors are used up.
        mask: of bytes; what is masked is zero whatever it was. None keeps all.
        weights: at least 0, of each.
    """
    if isinstance(base, Vector):
        return energies.weighted_majority(base, deltas, mask, weights)
    terms = _masked(deltas, mask)
    signs = majority(plain_sum([terms[0].clone(), *terms[1:]]))
    kept = [agreeing(term, signs) for term in terms]
    divisor = plain_sum([term.sign().mul_(weight) for term, weight in zip(kept, weights)])
    mixed = plain_sum([term.mul_(weight) for term, weight in zip(kept, weights)])
    return added(base, mixed.div_(divisor.clamp_min_(_SMALLEST_DIVISOR)).mul_(signs))


def _masked(deltas: Sequence[Any], mask: np.ndarray | None) -> Sequence[Any]:
    return deltas if mask is None else [keep_only(delta, mask) for delta in deltas]
