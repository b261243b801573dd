"""Elements that matter to several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resumerge.kernels.accumulate import added, plain_sum, zeros_like
from resumerge.kernels.masks.drop import keep_only, reaches
from resumerge.native import Vector, elements


def voted_sum(
    base: Any,
    deltas: Sequence[Any],
    weights: Sequence[float],
    thresholds: Sequence[float],
    least: int,
    scale: float,
) -> Any:
    """``base + scale * sum(y_i)`` with ``y_i = w_i * d_i`` where enough models vote for an element.

    A model votes where ``|y_i| >= t_i * |sum(y_j) - y_i|``. Elsewhere, the base.

    Args:
        base: what the vectors `deltas` are differences from; torch's vectors are used up.
        least: how many votes are enough.
    """
    if isinstance(base, Vector):
        return elements.voted_sum(base, deltas, weights, thresholds, least, scale)
    terms = [delta.mul_(weight) for delta, weight in zip(deltas, weights)]
    total = plain_sum([terms[0].clone(), *terms[1:]])
    votes = zeros_like(total)
    for term, threshold in zip(terms, thresholds):
        rest = (total - term).abs_().mul_(threshold)
        votes.add_(reaches(term.abs_(), rest))
    return added(base, keep_only(total, votes >= least), scale)
