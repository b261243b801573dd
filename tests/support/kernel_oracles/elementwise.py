"""Sums, clamping and means, element by element."""

from __future__ import annotations

import numpy as np
import torch

from kernel_oracles.vectors import added, scaled, tensor_of, tensors_of, write
from resumerge.native import Vector


def round_to(vector: Vector, out: Vector) -> None:
    write(tensor_of(vector), out)


def weighted_sum(terms: list[Vector], weights: list[float], out: Vector) -> None:
    write(added(scaled(tensors_of(terms), weights)), out)


def weighted_sum_along(
    terms: list[Vector], weights: np.ndarray, row: int, by_column: bool, out: Vector
) -> None:
    axis = 0 if by_column else 1
    scaled = [
        term.view(-1, row) * torch.from_numpy(weight).unsqueeze(axis)
        for term, weight in zip(tensors_of(terms), weights)
    ]
    write(added(scaled).flatten(), out)


def clamp_to_distance(vector: Vector, center: Vector, distance: float, out: Vector) -> None:
    """Clamp, and turn -0 into 0 by an addition: processors differ in which of them they return."""
    x, middle = tensor_of(vector), tensor_of(center)
    write(x.clamp(middle - distance, middle + distance) + 0.0, out)


def trimmed_mean(vectors: list[Vector], cut: int, out: Vector) -> None:
    """Sort by a network of minima and maxima: where one vector has NaN, all have it."""
    found = [x + 0.0 for x in tensors_of(vectors)]
    for turn in range(len(found) if cut else 0):
        for i in range(turn % 2, len(found) - 1, 2):
            low, high = found[i], found[i + 1]
            found[i], found[i + 1] = torch.minimum(low, high), torch.maximum(low, high)
    middle = found[cut : len(found) - cut]
    write(added(middle) / len(middle), out)


def variance(vectors: list[Vector], out: Vector) -> None:
    """Apply Welford's recurrence, with each operation rounded to float32."""
    first, *others = tensors_of(vectors)
    mean, squares = first, torch.zeros_like(first)
    for count, x in enumerate(others, start=2):
        change = x - mean
        mean = mean + change * (1.0 / count)
        squares = squares + change * (x - mean)
    write(squares / len(vectors), out)
