"""Operations by row or by column on flat vectors that hold matrices.

`row` is the length of a row, in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.kernels.reductions import CHUNK, LANES, WIDENED_ELEMENTS
from resumerge.kernels.sums import sum_vectors
from resumerge.native import Vector, calls
from resumerge.native import matrices as compiled

if TYPE_CHECKING:
    from torch import Tensor


@np.errstate(invalid="ignore")
def row_gram(vectors: Sequence[Any], row: int) -> np.ndarray:
    """The dot products of every two vectors' rows, added in the order that `gram` uses.

    Returns:
        float64, shape ``(len(vectors), len(vectors), rows)``.
    """
    if isinstance(vectors[0], Vector):
        return calls.gram(vectors, len(vectors[0]) // row)
    matrices = [vector.view(-1, row) for vector in vectors]
    if vectors[0].device.type != "cpu":
        return _products_on_device(matrices, 1)
    count, rows = len(vectors), len(matrices[0])
    products = np.empty((count, count, rows))
    together = max(1, WIDENED_ELEMENTS // max(row, LANES))
    for first in range(0, rows, together):
        some = slice(first, first + together)
        wide = [_in_lanes(matrix.numpy()[some]) for matrix in matrices]
        for i in range(count):
            for j in range(i, count):
                products[i, j, some] = products[j, i, some] = _row_sums(wide[i] * wide[j])
    return products


@np.errstate(invalid="ignore")
def column_gram(vectors: Sequence[Any], row: int) -> np.ndarray:
    """The dot products of every two vectors' columns, rows added in their order.

    Returns:
        float64, shape ``(len(vectors), len(vectors), row)``.
    """
    if isinstance(vectors[0], Vector):
        return compiled.column_gram(vectors, row)
    matrices = [vector.view(-1, row) for vector in vectors]
    if vectors[0].device.type != "cpu":
        return _products_on_device(matrices, 0)
    count = len(vectors)
    products = np.zeros((count, count, row))
    for values in zip(*(matrix.numpy() for matrix in matrices)):
        wide = [value.astype(np.float64) for value in values]
        for i in range(count):
            for j in range(i, count):
                products[i, j] += wide[i] * wide[j]
    for i in range(count):
        for j in range(i):
            products[i, j] = products[j, i]
    return products


def weighted_sum_by_row(terms: Sequence[Any], weights: Sequence[np.ndarray], row: int) -> Any:
    """``sum(w_i * x_i)``, where each vector has a weight for each of its rows.

    Each weight, product and sum is rounded to float32, in the order given; torch's vectors are
    overwritten.
    """
    return _weighted_sum(terms, weights, row, by_column=False)


def weighted_sum_by_column(terms: Sequence[Any], weights: Sequence[np.ndarray], row: int) -> Any:
    """``sum(w_i * x_i)``, where each vector has a weight for each of its columns.

    Rounding and overwriting are as in `weighted_sum_by_row`.
    """
    return _weighted_sum(terms, weights, row, by_column=True)


def _weighted_sum(
    terms: Sequence[Any], weights: Sequence[np.ndarray], row: int, by_column: bool
) -> Any:
    if isinstance(terms[0], Vector):
        return compiled.weighted_sum_along(terms, np.array(weights), row, by_column)
    matrices = [term.view(-1, row) for term in terms]
    return sum_vectors(
        [
            matrix.mul_(matrix.new_tensor(weight).unsqueeze(0 if by_column else 1))
            for matrix, weight in zip(matrices, weights)
        ]
    ).flatten()


def _in_lanes(matrix: np.ndarray) -> np.ndarray:
    """Float64, shape ``(rows, chunks, rows of lanes, lanes)``, zeros behind the end of each row."""
    rows, row = matrix.shape
    chunk = CHUNK if row > CHUNK else -(-row // LANES) * LANES
    chunks = -(-row // chunk)
    wide = np.zeros((rows, chunks * chunk))
    wide[:, :row] = matrix
    return wide.reshape(rows, chunks, -1, LANES)


def _row_sums(products: np.ndarray) -> np.ndarray:
    """NumPy adds along any axis but the last one by one, in order."""
    lanes = np.zeros((len(products), LANES))
    for chunk in range(products.shape[1]):
        lanes += products[:, chunk].sum(axis=1)
    total = np.zeros(len(products))
    for lane in range(LANES):
        total += lanes[:, lane]
    return total


def _products_on_device(matrices: Sequence[Tensor], axis: int) -> np.ndarray:
    wide = [matrix.double() for matrix in matrices]
    return np.array([[(a * b).sum(dim=axis).cpu().numpy() for b in wide] for a in wide])
