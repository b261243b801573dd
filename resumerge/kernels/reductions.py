"""Reductions of one block, in float64, and their sum over blocks.

torch, NumPy and the compiled kernels add in the same order: element e of a chunk of `CHUNK`
elements is added to lane e mod `LANES`, the chunks' lanes are added, and the lanes at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.kernels.masks.apply import apply_mask
from resumerge.native import Vector, calls

if TYPE_CHECKING:
    from torch import Tensor

LANES, CHUNK = 32, 1024
WIDENED_ELEMENTS = 1 << 17
"""Elements that are converted to float64 at a time, so that they stay in the cache."""


@np.errstate(invalid="ignore")
def gram(vectors: Sequence[Any]) -> np.ndarray:
    """The dot product of every two vectors of one length.

    Returns:
        float64, symmetric, shape ``(len(vectors), len(vectors))``.
    """
    if isinstance(vectors[0], Vector):
        return calls.gram(vectors)[:, :, 0]
    count = len(vectors)
    if vectors[0].device.type != "cpu":
        wide = [vector.double() for vector in vectors]
        return np.array([[float(a @ b) for b in wide] for a in wide])
    lanes = np.zeros((count, count, LANES))
    for start in range(0, len(vectors[0]), WIDENED_ELEMENTS):
        wide = [_wide(vector.numpy()[start : start + WIDENED_ELEMENTS]) for vector in vectors]
        for i in range(count):
            for j in range(i, count):
                lanes[i, j] = lanes[j, i] = _add_lanes(lanes[i, j], wide[i] * wide[j])
    return np.array([[_sum_lanes(pair) for pair in row] for row in lanes]).reshape(count, count)


def l1_norms(values: Any, mask: np.ndarray | None) -> tuple[float, float]:
    """``sum(|x|)`` of all elements, and of those that a mask (uint8, None keeps all) keeps."""
    if isinstance(values, Vector):
        every, kept = calls.l1_norms(values, mask)
        return every, every if mask is None else kept
    every = l1_norm(values)
    return every, every if mask is None else l1_norm(apply_mask(values.clone(), mask))


@np.errstate(invalid="ignore")
def l1_norm(values: Tensor) -> float:
    """``sum(|x|)`` of a float32 vector."""
    if values.device.type != "cpu":
        return float(values.double().abs().sum())
    lanes = np.zeros(LANES)
    for start in range(0, len(values), WIDENED_ELEMENTS):
        lanes = _add_lanes(lanes, np.abs(_wide(values.numpy()[start : start + WIDENED_ELEMENTS])))
    return _sum_lanes(lanes)


def sum_blocks(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of the blocks' partial results, added in the order of the blocks."""
    total: np.ndarray | None = None
    for part in parts:
        total = part if total is None else total + part
    assert total is not None, "a tensor has at least one block"
    return total


def _wide(values: np.ndarray) -> np.ndarray:
    """Float64, shape ``(chunks, rows of lanes, lanes)``, with zeros behind the end."""
    chunks = -(-len(values) // CHUNK)
    wide = np.zeros(chunks * CHUNK)
    wide[: len(values)] = values
    return wide.reshape(chunks, -1, LANES)


def _add_lanes(lanes: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """NumPy adds along any axis but the last one by one, in order."""
    added: np.ndarray = np.concatenate([lanes[np.newaxis], wide.sum(axis=1)]).sum(axis=0)
    return added


def _sum_lanes(lanes: np.ndarray) -> float:
    total = 0.0
    for lane in lanes.tolist():  # not `sum`, which compensates from Python 3.12 on
        total += lane
    return total
