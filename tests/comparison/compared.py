"""Small models to compare, written from NumPy, and the numbers that a comparison must find."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import TensorSpec, serialize_file
from tiny_models import LLAMA, llama_shapes

from resumerge.comparison import compare_models
from resumerge.comparison.values import rounded
from resumerge.engine.reporter import Reporter
from resumerge.kernels.elementwise import round_to
from resumerge.native import CODES, KINDS, Vector
from resumerge.options import Options
from resumerge.tensors.dtypes import BY_TORCH_NAME

Arrays = Mapping[str, np.ndarray]


def drawn(seed: int = 0, config: Mapping[str, Any] = LLAMA, std: float = 0.05) -> dict[str, Any]:
    """Draw normally distributed float32 numbers for each tensor of a llama."""
    draw = np.random.default_rng(seed)
    return {
        name: (std * draw.standard_normal(shape)).astype(np.float32)
        for name, shape in llama_shapes(config).items()
    }


def changed(arrays: Arrays, seed: int, std: float = 0.005) -> dict[str, np.ndarray]:
    """Return arrays after a random change of all elements."""
    draw = np.random.default_rng(seed)
    return {
        n: (a + std * draw.standard_normal(a.shape)).astype(np.float32) for n, a in arrays.items()
    }


def write(
    folder: Path,
    arrays: Arrays,
    dtype: str = "float32",
    config: Mapping[str, Any] = LLAMA,
    tokens: Mapping[str, int] | None = None,
) -> Path:
    """Write a model of arrays that are rounded to a type, named as in torch."""
    specs, kept = {}, []
    for name, array in arrays.items():
        bits = np.ascontiguousarray(array)
        kind = str(array.dtype)
        if array.dtype == np.float32:
            bits, kind = np.empty(array.shape, KINDS[CODES[dtype]]), dtype
            flat = Vector(np.ascontiguousarray(array).ravel())
            round_to(flat, Vector(bits.reshape(-1), CODES[dtype]))
        kept.append(bits)
        specs[name] = TensorSpec(
            dtype=kind, shape=list(bits.shape), data_ptr=bits.ctypes.data, data_len=bits.nbytes
        )
    folder.mkdir(parents=True, exist_ok=True)
    serialize_file(specs, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    if tokens is not None:
        vocabulary = {"model": {"type": "BPE", "vocab": dict(tokens), "merges": []}}
        (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return folder


def as_stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 numbers as they are after storage in a type."""
    return rounded(array.ravel(), BY_TORCH_NAME[dtype]).reshape(array.shape)


def compare(
    place: Path,
    *models: object,
    base: object = None,
    recipe: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Compare models, with the state folder in `place`, and return the document."""
    names = [str(model) for model in models]
    chosen = Options(state_dir=place / "state", **options)
    named = None if base is None else str(base)
    return compare_models(names, named, chosen, Reporter(), recipe=recipe)


def pair(place: Path, *models: object, **options: Any) -> dict[str, Any]:
    """Compare two models, and return the only pair."""
    [found] = compare(place, *models, **options)["pairs"]
    return found


def flat(arrays: Arrays) -> np.ndarray:
    """Return all elements of arrays in float64."""
    return np.concatenate([a.ravel().astype(np.float64) for a in arrays.values()])
