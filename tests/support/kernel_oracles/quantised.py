"""Numbers of codes, grids of scales, and codes of numbers."""

from __future__ import annotations

import numpy as np


def decode(codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    numbers = table.reshape(256, -1)
    out.reshape(-1, numbers.shape[1])[:] = numbers[codes]


def apply_grid(
    matrix: np.ndarray, columns: int, grid: np.ndarray, block: int, subtracts: bool
) -> None:
    rows = matrix.reshape(-1, columns)
    numbers = grid.reshape(len(rows), -(-columns // block))
    for start in range(0, columns, block):
        part, by = rows[:, start : start + block], numbers[:, start // block, None]
        part[:] = part - by if subtracts else part * by


def block_maxima(matrix: np.ndarray, columns: int, block: int) -> np.ndarray:
    sizes = np.abs(matrix.reshape(-1, columns))
    starts = range(0, columns, block)
    parts = [sizes[:, start : start + block].max(axis=1) for start in starts]
    return np.stack(parts, axis=1).astype(np.float32)


_INT4 = np.arange(-8.0, 8.0)
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _nearest(numbers: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return places of the nearest numbers in an ascending table, of two the even; 0 for NaN."""
    above = np.searchsorted(table, numbers).clip(1, len(table) - 1)
    low, high = numbers - table[above - 1], table[above] - numbers
    lower = (low < high) | ((low == high) & (above % 2 == 1))
    found: np.ndarray = np.where(lower, above - 1, above)
    return np.where(np.isnan(numbers), 0, found)


def quantise(
    matrix: np.ndarray, columns: int, grid: np.ndarray, block: int, code: int
) -> np.ndarray:
    rows = matrix.reshape(-1, columns)
    scales = np.repeat(grid.reshape(len(rows), -(-columns // block)), block, axis=1)[:, :columns]
    with np.errstate(all="ignore"):
        numbers = (rows / scales).reshape(-1)
    if code == 0:
        import torch

        clipped = torch.from_numpy(numbers).clamp(-448, 448)
        found = clipped.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        return np.where(np.isnan(numbers), 0x7F, found)
    if code == 1:
        codes = np.where(np.isnan(numbers), 8, _nearest(numbers.astype(float), _INT4))
    else:
        sign = np.signbit(numbers) & ~np.isnan(numbers)
        codes = _nearest(np.abs(numbers.astype(float)), _E2M1) + 8 * sign
    codes = codes.astype(np.uint8)
    return codes[::2] | codes[1::2] << np.uint8(4)
