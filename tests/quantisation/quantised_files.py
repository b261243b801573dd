"""Quantised models on disk, and the numbers of their weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reading import evaluation, read
from safetensors.torch import save_file

from resumerge.recipe import ModelRef
from resumerge.sources import open_source
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source
from resumerge.tensors import Rounded, Tensor


def written(folder: Path, stored: dict[str, torch.Tensor], config: dict[str, Any]) -> Source:
    """Write a model of these tensors, and open it."""
    folder.mkdir(exist_ok=True)
    apart = {key: tensor.contiguous() for key, tensor in stored.items()}
    save_file(apart, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return open_source(ModelRef(str(folder), str(folder)))


def exact(source: Source, name: str) -> Tensor:
    """Return a quantised weight in float32, as a merge reads it."""
    tensor = source.tensors[name]
    assert isinstance(tensor, Rounded)
    assert tensor.dtype == "BF16"
    assert tensor.exact.dtype == "F32"
    return tensor.exact


def numbers(source: Source, tensor: Tensor, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Return the elements ``start:stop`` of a tensor in float32."""
    found = read(evaluation(SourceReader([source]), 1 << 30), tensor, start, stop)
    return np.frombuffer(found, np.float32)
