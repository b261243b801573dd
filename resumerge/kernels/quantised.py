"""Kernels of quantisation: decode codes, apply grids of scales, and encode numbers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from resumerge.native import _kernels


class Code(IntEnum):
    """The kinds of codes. Numbers are rounded to nearest, ties to even; too large ones saturate.

    NaN becomes the NaN of `E4M3`, and 0 in the other kinds, which have no NaN.
    """

    E4M3 = 0
    """Float8, one in a byte."""
    INT4 = 1
    """Whole numbers from -8 to 7, with 8 added; two in a byte, the first in the lower bits."""
    E2M1 = 2
    """FP4, two in a byte, the first in the lower bits."""

    @property
    def per_byte(self) -> int:
        """The number of codes in a byte."""
        return 1 if self is Code.E4M3 else 2


def decode(codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """Write the numbers of codes.

    Args:
        codes: uint8; each byte has the codes of one or two numbers.
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


def block_maxima(matrix: np.ndarray, columns: int, block: int) -> np.ndarray:
    """Return the largest magnitude of each block of a row; NaN for a block that contains NaN.

    Args:
        matrix: rows one after the other, float32.
        columns: the elements of a row.
        block: the elements of a block; the last one of a row may have fewer.

    Returns:
        float32, shape (rows, blocks of a row).
    """
    out = np.empty((len(matrix) // columns, -(-columns // block)), np.float32)
    _kernels.block_maxima(matrix, columns, block, out.reshape(-1))
    return out


def quantise(
    matrix: np.ndarray, columns: int, grid: np.ndarray, block: int, code: Code, out: np.ndarray
) -> None:
    """Write the codes of numbers, each divided by the scale of its block.

    Args:
        matrix: rows one after the other, float32.
        columns: the elements of a row.
        grid: a scale for each block of each row, float32.
        block: the elements of a block; the last one of a row may have fewer.
        code: the kind of codes; if a byte has two, `columns` and `block` are even.
        out: uint8.
    """
    _kernels.quantise(matrix, columns, grid.reshape(-1), block, int(code), out)
