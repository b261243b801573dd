"""Reductions of one block, in float64, and their sum over blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

_CHUNK = 1 << 17
"""Elements that are widened to float64 at a time, so that they stay in the cache."""


def gram(vectors: Sequence[Tensor]) -> np.ndarray:
    """The dot product of every two float32 vectors of one length.

    Returns:
        float64, symmetric, shape ``(len(vectors), len(vectors))``.
    """
    count = len(vectors)
    products = np.zeros((count, count))
    for chunks in zip(*(vector.split(_CHUNK) for vector in vectors)):
        wide = [chunk.double() for chunk in chunks]
        for i in range(count):
            for j in range(i, count):
                products[i, j] += float(torch.dot(wide[i], wide[j]))
    return np.triu(products) + np.triu(products, 1).T


def row_gram(rows: Sequence[Tensor]) -> np.ndarray:
    """The same for each row of float32 matrices of one shape.

    Returns:
        float64, shape ``(len(rows), len(rows), rows of the matrices)``.
    """
    count = len(rows)
    products = np.zeros((count, count, len(rows[0])))
    wide = [matrix.double() for matrix in rows]
    for i in range(count):
        for j in range(i, count):
            products[i, j] = products[j, i] = (wide[i] * wide[j]).sum(dim=1).cpu().numpy()
    return products


def dots(a: Tensor, b: Tensor) -> tuple[float, float, float]:
    """``sum(a * a), sum(b * b), sum(a * b)`` of two float32 vectors, in float64."""
    products = gram([a, b])
    return float(products[0, 0]), float(products[1, 1]), float(products[0, 1])


def dot(a: Tensor, b: Tensor) -> float:
    """``sum(a * b)`` of two float32 vectors, in float64."""
    chunks = zip(a.split(_CHUNK), b.split(_CHUNK))
    return sum(float(torch.dot(x.double(), y.double())) for x, y in chunks)


def absolute_sum(values: Tensor) -> float:
    """``sum(abs(values))`` of a float32 vector, in float64."""
    return float(values.abs().sum(dtype=torch.float64))


def summed(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The blocks' partial results added up, in their order."""
    total: np.ndarray | None = None
    for part in parts:
        total = part if total is None else total + part
    assert total is not None, "a tensor has at least one block"
    return total
