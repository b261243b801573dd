"""Kernels of task vectors, the differences from a base: combine them and add them to the base."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.overflow import without_overflow
from resumerge.native import MaskOrThreshold, Vector, _kernels

SMALLEST_DIVISOR = 1e-8
"""The smallest magnitude of a divisor; `native/task_vectors.h` defines it, too."""


def subtract_base(inputs: list[Vector], base: int | None) -> list[Vector]:
    """Return the task vectors ``x - x_base`` of the inputs that are not the base.

    Args:
        inputs: vectors of one length.
        base: the index of the base among the inputs; None returns the inputs unchanged.
    """
    if base is None:
        return inputs
    return [x.less(inputs[base]) for i, x in enumerate(inputs) if i != base]


def add_sum(base: Vector, changes: Sequence[Vector], scale: float, out: Vector) -> None:
    """Write ``base + scale * sum(x_i)``.

    Args:
        base: the vector that the sum is added to.
        changes: the x_i: differences from the base, or plain vectors.
        scale: the factor on the sum.
        out: the vector to write to, rounded to its dtype.
    """
    no_masks, ones = [None] * len(changes), [1.0] * len(changes)
    add_task_vectors(
        base,
        changes,
        masks=no_masks,
        factors=ones,
        divisor_weights=ones,
        elect_signs=False,
        normalize=False,
        scale=scale,
        out=out,
    )


def add_task_vectors(
    base: Vector,
    deltas: Sequence[Vector],
    *,
    masks: Sequence[MaskOrThreshold],
    factors: Sequence[float],
    divisor_weights: Sequence[float],
    elect_signs: bool,
    normalize: bool,
    scale: float,
    out: Vector,
) -> None:
    """Write ``base + scale * sum(a_i * f_i * m_i * d_i)``.

    Signs are elected as in TIES (https://arxiv.org/abs/2306.01708, section 4.2): an element of the
    sum includes only the terms with the sign of the sum of all terms. A sum of zero counts as
    positive, and a term of zero has no sign. This is also called sign consensus.

    Args:
        base: the vector that the `deltas` are differences from.
        deltas: d_i, the task vectors.
        masks: m_i for each vector: uint8 of 0 and 1, or a result of
            `Selection.mask_or_threshold`, or None to keep all elements. A masked element counts as
            0, even if it is NaN.
        factors: f_i, one for each vector.
        divisor_weights: w_i, one for each vector.
        elect_signs: whether a_i is 1 only where term i has the sign of the sum of all terms, else
            0. Without it, every a_i is 1.
        normalize: whether, with `elect_signs`, the sum is divided by ``s = sum(a_i * w_i)``. s is
            nearly 0 where no vector takes part, or where weights cancel. If each w_i is at least
            `SMALLEST_DIVISOR`, s is raised to at least `SMALLEST_DIVISOR`. Otherwise, an s of
            smaller magnitude is replaced by ``s + 1``.
        scale: the factor on the sum.
        out: the vector to write to, rounded to its dtype.
    """

    def compute(x: Sequence[Vector], to: Vector, factor: float) -> bool:
        used_masks = masks if factor == 1.0 else [_as_mask(d, m) for d, m in zip(deltas, masks)]
        return _kernels.add_task_vectors(
            x[0], x[1:], used_masks, factors, divisor_weights, elect_signs, normalize, scale, to
        )

    without_overflow(compute, [base, *deltas], out)


def _as_mask(delta: Vector, mask_or_threshold: MaskOrThreshold) -> np.ndarray | None:
    """Return the mask of a threshold, which does not fit scaled numbers; or a mask unchanged."""
    if not isinstance(mask_or_threshold, tuple):
        return mask_or_threshold
    mask = np.empty(len(delta), np.uint8)
    _kernels.mask_above(delta, False, *mask_or_threshold, mask)
    return mask


def add_voted_sum(
    base: Vector,
    deltas: Sequence[Vector],
    weights: Sequence[float],
    thresholds: Sequence[float],
    least: int,
    scale: float,
    out: Vector,
) -> None:
    """Write ``base + scale * sum(w_i * d_i)`` where enough models vote for an element, else base.

    With ``y_i = w_i * d_i``, model i votes for an element if ``|y_i| >= t_i * |sum(y_j) - y_i|``.
    The method is from https://arxiv.org/abs/2405.07813.

    Args:
        base: the vector that the `deltas` are differences from.
        deltas: d_i, the task vectors.
        weights: w_i, one for each vector.
        thresholds: t_i, one for each vector.
        least: the smallest number of votes with which an element changes.
        scale: the factor on the sum.
        out: the vector to write to, rounded to its dtype.
    """
    without_overflow(
        lambda x, to, _: _kernels.add_voted_sum(x[0], x[1:], weights, thresholds, least, scale, to),
        [base, *deltas],
        out,
        within=lambda x, to, _: _kernels.weighted_sum(x[1:], weights, to),
    )


def add_mean_change(
    base: Vector, deltas: Sequence[Vector], epsilon: float, factors: Sequence[float], out: Vector
) -> None:
    """Write ``base + sum(f_i * d_i) / c``, where c is the number of models that changed an element.

    A model changed an element where ``|d_i| > epsilon``. The method is from
    https://arxiv.org/abs/2601.13572.

    Args:
        base: the vector that the `deltas` are differences from.
        deltas: d_i, the task vectors.
        epsilon: the largest magnitude that counts as no change.
        factors: f_i for the elements that only model i changed; for other elements, f_i is 1.
        out: the vector to write to, rounded to its dtype.
    """
    without_overflow(
        lambda x, to, factor: _kernels.add_mean_change(x[0], x[1:], factors, epsilon * factor, to),
        [base, *deltas],
        out,
    )


def add_majority_mean(
    base: Vector,
    deltas: Sequence[Vector],
    mask: np.ndarray | None,
    weights: Sequence[float],
    out: Vector,
) -> None:
    """Write ``base + sum(a_i * w_i * d_i) / sum(a_i * w_i)``.

    a_i is 1 where d_i has the sign of ``sum(d_i)``, else 0; the sign of a zero sum is plus. The
    method is from https://arxiv.org/abs/2408.07990.

    Args:
        base: the vector that the `deltas` are differences from.
        deltas: d_i, the task vectors.
        mask: uint8 of 0 and 1, the same for all vectors; None keeps all elements. A masked element
            counts as 0, even if it is NaN.
        weights: w_i, one for each vector, at least 0.
        out: the vector to write to, rounded to its dtype.
    """
    without_overflow(
        lambda x, to, _: _kernels.add_majority_mean(x[0], x[1:], mask, weights, to),
        [base, *deltas],
        out,
        within=lambda x, to, _: _kernels.weighted_sum(x[1:], [1.0] * len(deltas), to),
    )
