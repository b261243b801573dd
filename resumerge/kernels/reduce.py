"""Reductions of one block, in float64, and their sum over blocks.

All in one order, whatever computes them: element e of a chunk is added to lane e mod `LANES`,
lanes are added up over the chunks, and to each other at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.kernels.masks.drop import keep_only
from resumerge.native import Vector, calls

if TYPE_CHECKING:
    from torch import Tensor

LANES, CHUNK = 32, 1024
TOGETHER = 1 << 17
"""Elements that are widened to float64 at a time, so that they stay in the cache."""


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
    for start in range(0, len(vectors[0]), TOGETHER):
        wide = [_wide(vector.numpy()[start : start + TOGETHER]) for vector in vectors]
        for i in range(count):
            for j in range(i, count):
                lanes[i, j] = lanes[j, i] = _added_up(lanes[i, j], wide[i] * wide[j])
    return np.array([[_total(pair) for pair in row] for row in lanes]).reshape(count, count)


def absolute_sums(values: Any, mask: np.ndarray | None) -> tuple[float, float]:
    """``sum(|x|)`` of all elements, and of those that a mask of bytes keeps; None keeps all."""
    if isinstance(values, Vector):
        every, kept = calls.absolute_sums(values, mask)
        return every, every if mask is None else kept
    every = absolute_sum(values)
    return every, every if mask is None else absolute_sum(keep_only(values.clone(), mask))


@np.errstate(invalid="ignore")
def absolute_sum(values: Tensor) -> float:
    """``sum(|x|)`` of a float32 vector."""
    if values.device.type != "cpu":
        return float(values.double().abs().sum())
    lanes = np.zeros(LANES)
    for start in range(0, len(values), TOGETHER):
        lanes = _added_up(lanes, np.abs(_wide(values.numpy()[start : start + TOGETHER])))
    return _total(lanes)


def summed(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The blocks' partial results added up, in their order."""
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


def _added_up(lanes: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """NumPy adds along any axis but the last one by one, in order."""
    added: np.ndarray = np.concatenate([lanes[np.newaxis], wide.sum(axis=1)]).sum(axis=0)
    return added


def _total(lanes: np.ndarray) -> float:
    total = 0.0
    for lane in lanes.tolist():  # not `sum`, which compensates from Python 3.12 on
        total += lane
    return total
