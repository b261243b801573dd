"""The core space of matrices of low rank: shared bases, and each matrix in these bases.

Panariello et al. 2025, Accurate and efficient low-rank model merging in core space,
https://arxiv.org/abs/2509.17786. NumPy's BLAS and LAPACK compute it. The bits depend on the machine
and the build of BLAS, but not on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from resumerge.host.blas import one_blas_thread

Product = tuple[np.ndarray, np.ndarray]
"""The factors of a matrix: shapes (rows, rank) and (rank, columns), float64."""


@dataclass(frozen=True)
class CoreSpace:
    """Several matrices in shared bases: each matrix is ``left @ core @ right``.

    Args:
        cores: the matrices, expressed in the bases: float32.
        left: the basis of the columns: orthonormal columns, float64; None for the identity.
        right: the basis of the rows: orthonormal rows, float64; None for the identity.
    """

    cores: list[np.ndarray]
    left: np.ndarray | None = None
    right: np.ndarray | None = None

    def placed(self, left: np.ndarray, right: np.ndarray) -> Product:
        """Return the factors of the matrix whose core has the factors `left` and `right`."""
        return (
            left if self.left is None else self.left @ left,
            right if self.right is None else right @ self.right,
        )


def core_shape(shape: tuple[int, int], rank: int) -> tuple[int, int]:
    """Return the shape of a core: (rank, rank), or `shape` if that would not be smaller.

    Args:
        shape: the (rows, columns) of the matrices.
        rank: the sum of the ranks of the matrices.
    """
    return (rank, rank) if rank < min(shape) else shape


def core_space(products: Sequence[Product], shape: tuple[int, int]) -> CoreSpace:
    """Return the core space of several matrices.

    The left basis consists of the singular vectors of all left factors, concatenated. The right
    basis is computed in the same way from the right factors. Every matrix is represented exactly.
    If the sum of the ranks is at least the shorter side of the matrices, cores would not be
    smaller; the matrices themselves become the cores, without bases.

    Args:
        products: the matrices, each as its two factors.
        shape: the (rows, columns) of the matrices.

    Raises:
        FloatingPointError: an element is not finite.
    """
    ranks = [left.shape[1] for left, _ in products]
    if not all(np.isfinite(factor).all() for product in products for factor in product):
        raise FloatingPointError("not all elements are finite")
    with one_blas_thread():
        if core_shape(shape, sum(ranks)) == shape:
            return CoreSpace([(left @ right).astype(np.float32) for left, right in products])
        left, left_in_basis = _basis(np.hstack([left for left, _ in products]))
        right, right_in_basis = _basis(np.vstack([right for _, right in products]).T)
        ends = accumulate(ranks, initial=0)
        rank_slices = [slice(*bounds) for bounds in pairwise(ends)]
        cores = [
            (left_in_basis[:, rank_slice] @ right_in_basis[:, rank_slice].T).astype(np.float32)
            for rank_slice in rank_slices
        ]
    return CoreSpace(cores, left, right.T)


def concatenated(products: Sequence[Product], factors: Sequence[float]) -> Product:
    """Return the factors of a weighted sum of matrices, by concatenating the matrices' factors.

    Args:
        products: the matrices, each as its two factors.
        factors: the weight of each matrix.
    """
    scaled_lefts = [left * factor for (left, _), factor in zip(products, factors)]
    return np.hstack(scaled_lefts), np.vstack([right for _, right in products])


def energy(product: Product) -> float:
    """Return the sum of squares of a matrix's elements; it is not finite if an element is not."""
    left, right = product
    with one_blas_thread():
        # `max` would return 0 for NaN.
        return float(np.maximum(0.0, ((left.T @ left) * (right @ right.T)).sum()))


def working_bytes(shape: tuple[int, int], rank: int) -> int:
    """Return the size of the arrays in `core_space` in bytes, without the factors and cores."""
    rows, columns = shape
    if core_shape(shape, rank) == shape:
        return 8 * rows * columns
    return 8 * (4 * rank * max(shape) + rank * (rows + columns) + 6 * rank * rank)


def _basis(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the left singular vectors of a tall matrix, and the matrix in this basis."""
    orthonormal, triangle = np.linalg.qr(matrix)
    left_vectors, values, right_vectors = np.linalg.svd(triangle)
    return orthonormal @ left_vectors, values[:, None] * right_vectors
