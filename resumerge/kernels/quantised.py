"""The numbers that codes stand for, and the grids of scales that lie over a weight."""

from __future__ import annotations

import numpy as np

from resumerge.native import _kernels


def decode(codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """Write the numbers of codes.

    Args:
        codes: uint8; each has one or two numbers.
        table: the numbers of each of the 256 bytes in their order: (256, 1 or 2), float32.
        out: one or two numbers for each byte, float32.
    """
    _kernels.decode(codes, table.reshape(-1), out)


def apply_grid(
    matrix: np.ndarray, columns: int, grid: np.ndarray, block: int, *, subtracts: bool
) -> None:
    """Multiply each block of a row by a number, in place, or subtract a number from it.

    Args:
        matrix: rows one after the other, float32.
        columns: the elements of a row.
        grid: a number for each block of each row, float32.
        block: the elements of a block; the last one of a row may have fewer.
        subtracts: whether the number is subtracted.
    """
    _kernels.apply_grid(matrix, columns, grid, block, subtracts)
