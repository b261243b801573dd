"""Counts of the vectors that changed an element, by their magnitudes there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kernel_oracles.vectors import added, parts, tensor_of, tensors_of, write
from resumerge.native import Vector


def add_mean_change(
    base: Vector, vectors: list[Vector], factors: list[float], epsilon: float, out: Vector
) -> None:
    large = [torch.nn.functional.hardshrink(d, epsilon) for d in tensors_of(vectors)]
    counts = added(changed(large))
    total = added([d * torch.where(counts == 1.0, f, 1.0) for d, f in zip(large, factors)])
    write(tensor_of(base) + total / counts.clamp_min(1.0), out)


def count_changes(vectors: list[Vector], epsilon: float, block: int, out: np.ndarray) -> None:
    flags = changed([torch.nn.functional.hardshrink(d, epsilon) for d in tensors_of(vectors)])
    alone = added(flags) == 1.0
    for b, part in enumerate(parts(len(vectors[0]), block)):
        for k, flag in enumerate(flags):
            alone_here = (flag * alone)[part]
            out[b, k] = int(flag[part].count_nonzero()), int(alone_here.count_nonzero())


def count_conflicts(vectors: list[Vector], out: np.ndarray) -> None:
    signs = [d.sign().nan_to_num(0.0) for d in tensors_of(vectors)]
    for i, x in enumerate(signs):
        for j, y in enumerate(signs):
            products = x * y if i != j else x * 0
            out[i, j] = int(products.count_nonzero()), int((products < 0).count_nonzero())


def changed(large: list[Tensor]) -> list[Tensor]:
    """Return 1 where an element is not 0, else 0 (also for NaN)."""
    return [x.sign().nan_to_num(0.0).abs() for x in large]
