"""Adds the product of an adapter's matrices to parts of a weight.

Every element has the same bits in any range, thread and processor, because all sums are exact. The
entries of both matrices are scaled to integers: by a power of two for each row of the left matrix
and for each column of the right one. The integers have so few bits (22 or more) that a float64
holds every sum of their products exactly. All other operations are elementwise in float64, with one
rounding to the dtype of the weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class Change:
    """The change ``scale * B @ A`` of a weight, transposed if the weight is stored transposed.

    Args:
        a: shape (rank, in).
        b: shape (out, rank).
        transposed: whether the weight is stored as (in, out).

    Attributes:
        factors: DoRA's factor of each output of the changed weight, float64; None without DoRA.
    """

    def __init__(self, a: Tensor, b: Tensor, scale: float, transposed: bool) -> None:
        self.transposed = transposed
        self.factors: Tensor | None = None
        left, right = (a.T, b.T) if transposed else (b, a)
        self._left = left
        self._scale = scale
        self._bits = (53 - (len(a) - 1).bit_length()) // 2
        self._right, self._right_unit = _as_integers(right, 0, self._bits)

    def added(self, weight: Tensor, rows: slice, columns: slice) -> Tensor:
        """Add the change to a part of the weight, in place, and return the part.

        Args:
            weight: the part of the weight, float64.
            rows: the rows of the whole weight that the part consists of.
            columns: the columns of the whole weight that the part consists of.
        """
        left, row_unit = _as_integers(self._left[rows], 1, self._bits)
        change = left @ self._right[:, columns]
        change *= self._right_unit[:, columns]
        change *= row_unit * self._scale
        weight += change
        if self.factors is not None:
            weight *= self.factors[columns] if self.transposed else self.factors[rows, None]
        return weight


def _as_integers(matrix: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor]:
    """Return a matrix as integers, and the power of two to multiply each row or column by.

    Args:
        matrix: one of the two factors of the product, or some of its rows.
        dim: 1 for one power of two per row, 0 for one per column.
        bits: the most bits of an integer.

    Returns:
        The integers and the powers of two, both float64.
    """
    import torch

    float64_matrix = matrix.double()
    largest_magnitudes = float64_matrix.abs().amax(dim, keepdim=True).numpy()
    exponents = np.maximum(np.frexp(largest_magnitudes)[1], -900) - bits
    upscaling, downscaling = np.ldexp(1.0, -exponents), np.ldexp(1.0, exponents)
    return (float64_matrix * torch.from_numpy(upscaling)).round_(), torch.from_numpy(downscaling)


def folded_sum(values: Tensor, dim: int) -> Tensor:
    """Return the sum along a dimension. Halves are added, in the same order on every processor."""
    while (count := values.shape[dim]) > 1:
        half = count // 2
        half_sums = values.narrow(dim, 0, half) + values.narrow(dim, half, half)
        if count % 2:
            half_sums.narrow(dim, 0, 1).add_(values.narrow(dim, count - 1, 1))
        values = half_sums
    return values.squeeze(dim)
