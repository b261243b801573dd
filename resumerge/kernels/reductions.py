"""Reductions of vectors to a few numbers, for each block or row.

Sums are float64, in an order that does not depend on the processor. Element e of each chunk of
1,024 elements is added to lane e mod 32. The lanes are summed over the chunks, and then added to
each other. If a difference of finite numbers overflows float32, see `resumerge.kernels.overflow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from resumerge.kernels.blocks import BlockRun
from resumerge.kernels.overflow import sums_without_overflow
from resumerge.native import Vector, _kernels


def gram(vectors: Sequence[Vector], run: BlockRun) -> np.ndarray:
    """Return the dot products of each two vectors, for each block of a block run.

    Returns:
        float64, symmetric, shape ``(len(run), len(vectors), len(vectors))``.
    """
    out = np.empty((len(run), len(vectors), len(vectors)))
    sums_without_overflow(lambda x, to: _kernels.gram(x, run.size, to), vectors, out, 2)
    return out


def row_gram(vectors: Sequence[Vector], row: int) -> np.ndarray:
    """Return the dot products of each two vectors, for each row of `row` elements.

    Returns:
        float64, shape ``(len(vectors), len(vectors), rows)``.
    """
    out = np.empty((len(vectors[0]) // row, len(vectors), len(vectors)))
    sums_without_overflow(lambda x, to: _kernels.gram(x, row, to), vectors, out, 2)
    return np.moveaxis(out, 0, 2)


@dataclass(frozen=True)
class Distance:
    """The distance between two vectors, by several measures.

    Args:
        squares: the sum of squares of each vector.
        square: the sum of squares of the difference, which is computed in float64.
        differing: the number of elements whose values differ.
        largest: the largest magnitude of an element of the difference.
    """

    squares: tuple[float, float]
    square: float
    differing: int
    largest: float


def distance(first: Vector, second: Vector) -> Distance:
    """Return the distance between two vectors, in one pass over both."""
    out = np.empty(5)
    _kernels.distance(first, second, out)
    first_squares, second_squares, square, differing, largest = out.tolist()
    return Distance((first_squares, second_squares), square, int(differing), largest)


def column_gram(vectors: Sequence[Vector], row: int, run: BlockRun) -> np.ndarray:
    """Return the dot products of each two vectors, for each column and each block.

    Rows are added in their order.

    Returns:
        float64, shape ``(len(run), len(vectors), len(vectors), row)``.
    """
    out = np.empty((len(run), len(vectors), len(vectors), row))
    sums_without_overflow(lambda x, to: _kernels.column_gram(x, row, run.size, to), vectors, out, 2)
    return out


def l1_norms(vector: Vector, mask: np.ndarray | None, run: BlockRun) -> np.ndarray:
    """Return ``sum(|x|)`` for each block, over all elements and over those that a mask keeps.

    Args:
        vector: the elements of the block run.
        mask: uint8 of 0 and 1; None keeps all elements.
        run: the block run that `vector` and `mask` hold.

    Returns:
        float64, shape ``(len(run), 2)``.
    """
    out = np.empty((len(run), 2))
    sums_without_overflow(
        lambda x, to: _kernels.l1_norms(x[0], mask, run.size, to), [vector], out, 1
    )
    if mask is None:
        out[:, 1] = out[:, 0]
    return out


def sums_of_squares(deltas: Sequence[Vector], mask: np.ndarray | None, run: BlockRun) -> np.ndarray:
    """Return ``sum(d**2)`` for each block and vector, over the elements that a mask keeps.

    Args:
        deltas: the vectors, each of the run's length.
        mask: uint8 of 0 and 1, the same for all vectors; None keeps all elements.
        run: the block run that the vectors hold.

    Returns:
        float64, shape ``(len(run), len(deltas))``.
    """
    out = np.empty((len(deltas), len(run)))
    for delta, sums in zip(deltas, out):
        sums_without_overflow(
            lambda x, to: _kernels.sums_of_squares(x[0], mask, run.size, to), [delta], sums, 2
        )
    return out.T


def count_changes(deltas: Sequence[Vector], epsilon: float, run: BlockRun) -> np.ndarray:
    """Count the elements that a model changed, and those that only it changed, by block and model.

    A model changed an element where the magnitude of its task vector is above `epsilon`.

    Args:
        deltas: the models' differences from the same base.
        epsilon: the largest magnitude that counts as no change.
        run: the block run that the vectors hold.

    Returns:
        int64, shape ``(len(run), len(deltas), 2)``.
    """
    out = np.empty((len(run), len(deltas), 2), np.int64)
    _kernels.count_changes(deltas, epsilon, run.size, out)
    return out


def count_conflicts(deltas: Sequence[Vector]) -> np.ndarray:
    """Count the elements that both models of a pair changed, and the conflicts of sign, by pair.

    A conflict is an element that the two models changed in opposite directions.

    Args:
        deltas: the models' differences from the same base.

    Returns:
        int64, symmetric, shape ``(len(deltas), len(deltas), 2)``; 0 on the diagonal.
    """
    out = np.empty((len(deltas), len(deltas), 2), np.int64)
    _kernels.count_conflicts(deltas, out)
    return out
