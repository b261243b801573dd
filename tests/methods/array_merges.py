"""Merging arrays of any shape by a method, in blocks of any size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from example_parameters import example_parameters
from merging import merge, tensors_of
from safetensors.torch import save_file

from resumerge.methods import METHODS

NAMES = ("a", "b", "c", "d")
SHAPES = ((), (0,), (1,), (7,), (1, 1), (3, 0), (2, 3), (40, 13), (1, 50), (50, 1), (4, 5, 6))


def recipe(
    method: str,
    per_model: Sequence[Mapping[str, Any]],
    *,
    base: bool = False,
    **params: Any,
) -> str:
    """Return a recipe of models a, b, c… with their parameters, in JSON, which is YAML too."""
    models = [{"model": name, "parameters": dict(p)} for name, p in zip(NAMES, per_model)]
    document = {"merge_method": method, "models": models, "parameters": params}
    return json.dumps({**document, "base_model": "base"} if base else document)


def shaped(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Return normally distributed tensors of many shapes."""
    random = np.random.default_rng(seed)
    return {
        f"t{'x'.join(map(str, shape))}": np.float32(scale)
        * random.standard_normal(shape).astype(np.float32)
        for shape in SHAPES
    }


def fine_tuned(base: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return the tensors after a change of about a tenth."""
    changes = shaped(seed, 0.1)
    return {name: (array + changes[name]).astype(np.float32) for name, array in base.items()}


def merged(
    folder: Path, text: str, models: Mapping[str, Mapping[str, np.ndarray]], **options: Any
) -> dict[str, np.ndarray]:
    """Merge models with these tensors, and return the tensors of the result."""
    for name, arrays in models.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        tensors = {key: torch.from_numpy(np.array(array)) for key, array in arrays.items()}
        save_file(tensors, folder / name / "model.safetensors")
    out = merge(folder, text, folder / "out", restart=True, **options)
    return {name: tensor.numpy() for name, tensor in tensors_of(out).items()}


def example(method: str, models: int = 2, **params: object) -> str:
    """Return a recipe of a method, with the examples that its parameters declare."""
    declared = METHODS[method]
    most = declared.most or models
    count = min(models, most - (declared.base == "required")) if declared.most else models
    per_model, whole = example_parameters(method)
    with_base = declared.base != "none"
    return recipe(method, [per_model] * max(count, 1), base=with_base, **{**whole, **params})


def inputs(text: str, **models: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    document = json.loads(text)
    names = [model["model"] for model in document["models"]]
    return {n: models[n] for n in [*names, document.get("base_model", names[0])]}
