"""Tensors whose sizes lie around the borders of blocks, as models with nothing else in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from merging import merge, tensors_of
from safetensors.torch import save_file

BLOCK = 1000
"""The number of elements of a block in these tests."""

SIZES = (0, 1, 2, 3, 999, 1000, 1001, 1999, 2000, 2001, 5003)
Arrays = dict[str, np.ndarray]


def normal(seed: int) -> Arrays:
    """Return normally distributed numbers: no two magnitudes are equal."""
    random = np.random.default_rng(seed)
    return {f"n{n}": random.standard_normal(n).astype(np.float32) for n in SIZES}


def coarse(seed: int) -> Arrays:
    """Return multiples of 1/4 from -2 to 2: sums are exact, and many magnitudes are equal."""
    random = np.random.default_rng(seed)
    return {f"n{n}": random.integers(-8, 9, n).astype(np.float32) / 4 for n in SIZES}


def zeros() -> Arrays:
    return {f"n{n}": np.zeros(n, np.float32) for n in SIZES}


def ones() -> Arrays:
    return {f"n{n}": np.ones(n, np.float32) for n in SIZES}


def write(folder: Path, **models: Arrays) -> Path:
    """Write each set of tensors as a model of its name, without a config."""
    for name, arrays in models.items():
        (folder / name).mkdir(parents=True)
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        save_file(tensors, folder / name / "model.safetensors")
    return folder


def merged(models: Path, recipe: str, out: Path, seed: int = 0) -> Arrays:
    """Merge the models, and return the tensors of the result."""
    found = tensors_of(merge(models, recipe, out, seed=seed))
    return {name: tensor.numpy() for name, tensor in found.items()}
