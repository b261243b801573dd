"""Consensus task arithmetic: elements that matter to several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resumerge.kernels.masks.apply import apply_mask, at_least
from resumerge.kernels.sums import add_scaled, sum_vectors, zeros_like
from resumerge.native import Vector, elements


def add_voted_sum(
    base: Any,
    deltas: Sequence[Any],
    weights: Sequence[float],
    thresholds: Sequence[float],
    least: int,
    scale: float,
) -> Any:
    """``base + scale * sum(y_i)`` with ``y_i = w_i * d_i`` where enough models vote for an element.

    A model votes where ``|y_i| >= t_i * |sum(y_j) - y_i|``; elsewhere the result is the base. From
    https://arxiv.org/abs/2405.07813.

    Args:
        base: what the vectors `deltas` are differences from; torch's vectors are overwritten.
        least: number of votes that is enough.
    """
    if isinstance(base, Vector):
        return elements.add_voted_sum(base, deltas, weights, thresholds, least, scale)
    terms = [delta.mul_(weight) for delta, weight in zip(deltas, weights)]
    total = sum_vectors([terms[0].clone(), *terms[1:]])
    votes = zeros_like(total)
    for term, threshold in zip(terms, thresholds):
        rest = (total - term).abs_().mul_(threshold)
        votes.add_(at_least(term.abs_(), rest))
    return add_scaled(base, apply_mask(total, votes >= least), scale)
