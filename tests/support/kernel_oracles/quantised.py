"""Numbers of codes, and grids of scales."""

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
