"""Kernels of quantisation: decode codes, apply grids of scales, and encode numbers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from resumerge.native import _kernels


class Code(IntEnum):
    """The kinds of codes. Numbers are rounded to nearest, ties to even; too large ones saturate.

    NaN is encoded as NaN in `E4M3`, and as 0 in the other kinds, which have no NaN.
    """

    E4M3 = 0
    """Float8, one in a byte."""
    INT4 = 1
    """Integers from -8 to 7, stored with 8 added; two in a byte, the first in the lower bits."""
    E2M1 = 2
    """FP4, two in a byte, the first in the lower bits."""

    @property
    def per_byte(self) -> int:
        """The number of codes in a byte."""
        return 1 if self is Code.E4M3 else 2


def decode(codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """Write the numbers that codes represent.

    Args:
        codes: uint8; each byte contains the codes of one or two numbers.
        table: the one or two numbers of each byte value: float32, shape (256, 1) or (256, 2).
        out: the numbers, one or two for each byte of `codes`: float32.
    """
    _kernels.decode(codes, table.reshape(-1), out)


def apply_grid(
    matrix: np.ndarray, columns: int, grid: np.ndarray, block: int, *, subtracts: bool
) -> None:
    """Multiply each block of each row by a number, or subtract a number from it, in place.

    Args:
        matrix: rows one after the other, float32.
        columns: the number of elements of a row.
        grid: a number for each block of each row, float32.
        block: the number of elements of a block; the last block of a row may be shorter.
        subtracts: whether the number is subtracted; else the block is multiplied by it.
    """
    _kernels.apply_grid(matrix, columns, grid, block, subtracts)


def block_maxima(matrix: np.ndarray, columns: int, block: int) -> np.ndarray:
    """Return the largest magnitude of each block of a row; NaN for a block that contains NaN.

    Args:
        matrix: rows one after the other, float32.
        columns: the number of elements of a row.
        block: the number of elements of a block; the last block of a row may be shorter.

    Returns:
        float32, shape (rows, blocks of a row).
    """
    out = np.empty((len(matrix) // columns, -(-columns // block)), np.float32)
    _kernels.block_maxima(matrix, columns, block, out.reshape(-1))
    return out


def quantise(
    matrix: np.ndarray, columns: int, grid: np.ndarray, block: int, code: Code, out: np.ndarray
) -> None:
    """Divide each number by the scale of its block, and write the codes of the quotients.

    Args:
        matrix: rows one after the other, float32.
        columns: the number of elements of a row.
        grid: a scale for each block of each row, float32.
        block: the number of elements of a block; the last block of a row may be shorter.
        code: the kind of codes. If a byte holds two codes, `columns` and `block` are even.
        out: the codes, uint8.
    """
    _kernels.quantise(matrix, columns, grid.reshape(-1), block, int(code), out)
