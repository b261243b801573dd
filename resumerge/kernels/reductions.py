"""Reductions in float64, in an order that does not depend on the processor.

Element e of a chunk of 1,024 elements is added to lane e mod 32, the chunks' lanes are added, and
the lanes at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.blocks import Run
from resumerge.native import Vector, _kernels


def gram(vectors: Sequence[Vector], run: Run) -> np.ndarray:
    """The dot products of every two vectors of one length, for each block.

    Returns:
        float64, symmetric, shape ``(len(run), len(vectors), len(vectors))``.
    """
    out = np.empty((len(run), len(vectors), len(vectors)))
    _kernels.gram(vectors, run.size, out)
    return out


def row_gram(vectors: Sequence[Vector], row: int) -> np.ndarray:
    """The dot products of every two vectors' rows, of `row` elements.

    Returns:
        float64, shape ``(len(vectors), len(vectors), rows)``.
    """
    out = np.empty((len(vectors[0]) // row, len(vectors), len(vectors)))
    _kernels.gram(vectors, row, out)
    return np.moveaxis(out, 0, 2)


def column_gram(vectors: Sequence[Vector], row: int, run: Run) -> np.ndarray:
    """The dot products of every two vectors' columns for each block, rows added in their order.

    Returns:
        float64, shape ``(len(run), len(vectors), len(vectors), row)``.
    """
    out = np.empty((len(run), len(vectors), len(vectors), row))
    _kernels.column_gram(vectors, row, run.size, out)
    return out


def l1_norms(vector: Vector, mask: np.ndarray | None, run: Run) -> np.ndarray:
    """``sum(|x|)`` of all elements of each block, and of those that a mask keeps.

    Args:
        mask: uint8 of 0 and 1; None keeps all.

    Returns:
        float64, shape ``(len(run), 2)``.
    """
    out = np.empty((len(run), 2))
    _kernels.l1_norms(vector, mask, run.size, out)
    if mask is None:
        out[:, 1] = out[:, 0]
    return out
