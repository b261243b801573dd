"""The largest singular values, and singular vectors, of a matrix that is read by rows.

NumPy's BLAS and LAPACK compute them. On one machine, the bits do not depend on the number of
threads, because one thread computes a decomposition. Another processor, or another build of BLAS,
may round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from resumerge.host.blas import one_blas_thread
from resumerge.kernels.draws import normals

Rows = Callable[[], Iterable[np.ndarray]]
"""A function that returns the rows of a matrix in order, as float32 arrays of several rows."""

EXTRA = 24
"""The number of directions that are computed beyond the rank, to need fewer passes."""

SMALL_SIDE = 320
"""The largest shorter side of a matrix for which a Gram matrix is cheaper than passes."""

MOST_PASSES = 16
"""The largest number of pairs of passes over a matrix."""

LAST_GAIN = 1e-4
"""The gain of a pair of passes, as a share of the kept energy, at which the iteration ends."""


@dataclass(frozen=True)
class Decomposition:
    """The leading part ``left @ diag(values) @ right`` of a matrix.

    Args:
        left: shape (rows, rank), orthonormal columns, float32.
        values: the singular values, descending, float64.
        right: shape (rank, columns), orthonormal rows, float32.
        energy: the sum of the squares of all elements of the matrix.
    """

    left: np.ndarray
    values: np.ndarray
    right: np.ndarray
    energy: float


def is_small(rows: int, columns: int, rank: int) -> bool:
    """Return whether a matrix is decomposed exactly, by the Gram matrix of its shorter side."""
    short_side = min(rows, columns)
    return short_side <= SMALL_SIDE or 2 * (rank + EXTRA) >= short_side


def decompose(matrix: Rows, shape: tuple[int, int], rank: int, key: str) -> Decomposition:
    """Return the leading part of a matrix.

    A matrix with a short side (`is_small`) is decomposed with the precision of float64, by the
    eigenvectors of the Gram matrix of that side. Any other matrix is decomposed by subspace
    iteration from random directions, with QR between the passes (Halko, Martinsson, Tropp 2011,
    https://arxiv.org/abs/0909.4061, algorithm 4.4). The iteration ends when a pair of passes gains
    no more than `LAST_GAIN`.

    Args:
        matrix: returns the rows; it is called once for each pass.
        shape: the (rows, columns) of the matrix.
        rank: the number of singular values; at most the shorter side.
        key: text that identifies the random directions.

    Raises:
        FloatingPointError: an element is not finite.
    """
    with one_blas_thread():
        energy = sum(float(np.square(band, dtype=np.float64).sum()) for band in matrix())
        if not np.isfinite(energy):
            raise FloatingPointError("not all elements are finite")
        if not energy:
            rows, columns = shape
            zero_factors = np.zeros((rows, rank), np.float32), np.zeros((rank, columns), np.float32)
            return Decomposition(zero_factors[0], np.zeros(rank), zero_factors[1], 0.0)
        uses_gram = is_small(*shape, rank)
        factors = (
            _by_gram(matrix, shape, rank) if uses_gram else _by_passes(matrix, shape, rank, key)
        )
        return Decomposition(*factors, energy)


def working_bytes(rows: int, columns: int, rank: int) -> int:
    """Return the size of a decomposition's arrays in bytes, without the rows that are read."""
    if is_small(rows, columns, rank):
        short_side, long_side = sorted((rows, columns))
        return 8 * (
            6 * short_side * short_side
            + 3 * long_side * min(rank, short_side)
            + 3 * short_side * rank
        )
    return 4 * 5 * (rows + columns) * (rank + EXTRA)


def _by_gram(
    matrix: Rows, shape: tuple[int, int], rank: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = shape
    short_side = min(shape)
    gram = np.zeros((short_side, short_side))
    if columns == short_side:
        for band in matrix():
            exact_band = band.astype(np.float64)
            gram += exact_band.T @ exact_band
    else:
        for row, band in _placed(matrix):
            for other_row, other_band in _placed(matrix):
                if other_row <= row:
                    product = band.astype(np.float64) @ other_band.T.astype(np.float64)
                    gram[row : row + len(band), other_row : other_row + len(other_band)] = product
                    gram[other_row : other_row + len(other_band), row : row + len(band)] = product.T
    vectors = np.linalg.eigh(gram)[1][:, : -rank - 1 : -1]
    if columns == short_side:
        product = np.empty((rows, rank))
        for row, band in _placed(matrix):
            product[row : row + len(band)] = band.astype(np.float64) @ vectors
        values, left = _normalised(product)
        return left, values, np.ascontiguousarray(vectors.T, np.float32)
    product = np.zeros((columns, rank))
    for row, band in _placed(matrix):
        product += band.T.astype(np.float64) @ vectors[row : row + len(band)]
    values, right = _normalised(product)
    return vectors.astype(np.float32), values, np.ascontiguousarray(right.T)


def _normalised(product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the norms of the columns of a matrix, and the columns scaled to norm 1 as float32."""
    norms = np.sqrt(np.square(product).sum(axis=0))
    return norms, (product / np.where(norms > 0.0, norms, 1.0)).astype(np.float32)


def _by_passes(
    matrix: Rows, shape: tuple[int, int], rank: int, key: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = shape
    direction_count = rank + EXTRA
    right = (
        normals(key, 0, columns * direction_count)
        .reshape(columns, direction_count)
        .astype(np.float32)
    )
    kept_energy = 0.0
    for _ in range(MOST_PASSES):
        product = np.empty((rows, direction_count), np.float32)
        for row, band in _placed(matrix):
            np.matmul(band, right, out=product[row : row + len(band)])
        left = np.linalg.qr(product)[0]
        product = np.zeros((columns, direction_count), np.float32)
        for row, band in _placed(matrix):
            product += band.T @ left[row : row + len(band)]
        right, triangle = np.linalg.qr(product)
        triangle_left, values, triangle_right = np.linalg.svd(triangle.astype(np.float64))
        energy_before, kept_energy = kept_energy, float(np.square(values[:rank]).sum())
        if kept_energy - energy_before <= LAST_GAIN * kept_energy:
            break
    triangle_left = triangle_left[:, :rank].astype(np.float32)
    triangle_right = triangle_right[:rank].astype(np.float32)
    return left @ triangle_right.T, values[:rank], np.ascontiguousarray((right @ triangle_left).T)


def _placed(matrix: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (index of the first row, rows) for each array of rows of a matrix."""
    row = 0
    for band in matrix():
        yield row, band
        row += len(band)
