"""Masks by rank, as in DELLA (https://arxiv.org/abs/2406.11617)."""

from __future__ import annotations

import numpy as np

from resumerge.kernels.blocks import BlockRun
from resumerge.kernels.masks.random import philox_key
from resumerge.native import Vector, _kernels


def rank_mask(
    values: Vector,
    row: int,
    density: float,
    epsilon: float,
    key: str,
    run: BlockRun,
    stride: int = 1,
) -> np.ndarray:
    """Return a mask in which each element is kept with a probability that grows with its rank.

    The probability is ``density - epsilon + 2 * epsilon * rank / (row - 1)``. The rank, from 0, is
    by magnitude among the elements of the row. Magnitudes that agree to 11 bits after the leading
    one share the mean of their ranks, as do all magnitudes below 2^-32 times the row's largest. NaN
    and infinity rank highest. In a row of length 1 the probability is `density`.

    A draw has 24 bits. Elements are ranked only if their draw is between the smallest and the
    largest probability. The draw then determines a bound, and only the side of the bound on which
    the rank is has to be found.

    Args:
        values: the elements of the block run, which are ranked by magnitude.
        row: the number of elements of a row; each block consists of whole rows.
        density: the mean probability, with ``0 < density - abs(epsilon)`` and ``density +
            abs(epsilon) < 1``.
        epsilon: the largest difference of a probability from `density`. If it is negative, small
            elements are more likely to be kept than large ones.
        key: text that identifies the mask.
        run: the block run, whose place in the tensor determines the draws.
        stride: the distance between the elements of a row; ``row * stride`` consecutive elements
            hold `stride` rows.

    Returns:
        uint8 of 0 and 1, as long as `values`.
    """
    mask = np.empty(len(values), np.uint8)
    _kernels.rank_mask(
        values, philox_key(key), run.first, run.size, row, stride, density, epsilon, mask
    )
    return mask
