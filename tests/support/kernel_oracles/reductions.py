"""Sums in float64: the lanes of each chunk, the chunks, and then the lanes, one by one."""

from __future__ import annotations

import numpy as np
import torch

from kernel_oracles.vectors import masked, parts, tensor_of, tensors_of
from resumerge.native import Vector

LANES, CHUNK = 32, 1024


def gram(vectors: list[Vector], row: int, out: np.ndarray) -> None:
    wide = [_wide(x) for x in tensors_of(vectors)]
    for i, x in enumerate(wide):
        for j, y in enumerate(wide):
            out[:, i, j] = row_sums(_product(x, y), row)


@np.errstate(invalid="ignore")
def distance(first: Vector, second: Vector, out: np.ndarray) -> None:
    x, y = tensor_of(first), tensor_of(second)
    wide = [_wide(x), _wide(y)]
    wide.append(wide[1] - wide[0])
    out[:3] = [row_sums(_product(v, v), len(v))[0] if len(v) else 0.0 for v in wide]
    out[3] = int((x != y).count_nonzero())
    out[4] = np.fmax.reduce(np.abs(wide[2]), initial=0.0)


def column_gram(vectors: list[Vector], row: int, block: int, out: np.ndarray) -> None:
    wide = [_wide(x) for x in tensors_of(vectors)]
    for b, part in enumerate(parts(len(vectors[0]), block)):
        for i, x in enumerate(wide):
            for j, y in enumerate(wide):
                out[b, i, j] = _in_order(_product(x[part], y[part]).reshape(-1, row))


def l1_norms(vector: Vector, mask: np.ndarray | None, block: int, out: np.ndarray) -> None:
    x = tensor_of(vector)
    out[:, 0] = row_sums(np.abs(_wide(x)), block)
    out[:, 1] = 0.0 if mask is None else row_sums(np.abs(_wide(masked(x, mask))), block)


def sums_of_squares(vector: Vector, mask: np.ndarray | None, block: int, out: np.ndarray) -> None:
    x = _wide(masked(tensor_of(vector), mask))
    out[:] = row_sums(_product(x, x), block)


def row_sums(values: np.ndarray, row: int) -> np.ndarray:
    """Return the sum of each row; the last one may be shorter."""
    row = min(row, max(1, len(values)))
    chunk = min(CHUNK, -(-row // LANES) * LANES)
    rows, chunks = -(-len(values) // row), -(-row // chunk)
    whole = np.zeros(rows * row)
    whole[: len(values)] = values
    padded = np.zeros((rows, chunks * chunk))
    padded[:, :row] = whole.reshape(rows, row)
    lanes = _in_order(padded.reshape(rows, chunks, chunk // LANES, LANES), 2)
    return _in_order(_in_order(lanes, 1), 1)


@np.errstate(invalid="ignore")
def _in_order(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the sum along an axis, added one after the other, and never -0."""
    found: np.ndarray = np.cumsum(values, axis=axis).take(-1, axis=axis) + 0.0
    return found


@np.errstate(invalid="ignore")
def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found: np.ndarray = x * y
    return found


def _wide(x: torch.Tensor) -> np.ndarray:
    found: np.ndarray = x.double().numpy()
    return found
