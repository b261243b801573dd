"""Promise: how positions are scaled is in a GGUF file as config.json says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_outputs import write_checkpoint
from merging import merge

from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

RECIPE = "merge_method: passthrough\nmodels: [{model: model}]\n"
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize("scaled", [LINEAR, YARN, LLAMA], ids=lambda it: it["rope_type"])
@pytest.mark.parametrize("newer", [True, False])
def test_it_is_read_back(scaled: dict[str, Any], newer: bool, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config.pop("rope_parameters", None)
    if newer:
        config["rope_parameters"] = {**scaled, "rope_theta": 500000.0}
    else:
        config |= {"rope_scaling": scaled, "rope_theta": 500000.0}
    path.write_text(json.dumps(config))
    found = open_source(read_reference(str(merge(tmp_path, RECIPE, tmp_path / "a.gguf")))).config
    assert found["rope_scaling"] == scaled
    assert found["rope_theta"] == 500000.0


def test_factors_are_those_of_transformers(tmp_path: Path) -> None:
    from gguf import GGUFReader
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled = {**LLAMA, "rope_theta": 500000.0}
    write_checkpoint(tmp_path / "model", rope_parameters=scaled)
    tensors = GGUFReader(merge(tmp_path, RECIPE, tmp_path / "a.gguf")).tensors
    [factors] = [tensor.data for tensor in tensors if tensor.name == "rope_freqs.weight"]
    config = LlamaConfig.from_pretrained(tmp_path / "model")
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    usual = 1.0 / 500000.0 ** (np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(usual / factors, expected.numpy(), rtol=1e-6)


def test_long_and_short_factors_of_phi(tmp_path: Path) -> None:
    long, short = [float(n) for n in range(2, 34)], [1.0 + n / 64 for n in range(32)]
    scaled = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
    write_checkpoint(
        tmp_path / "model",
        "phi3",
        rope_parameters={**scaled, "rope_theta": 10000.0},
        original_max_position_embeddings=64,
    )
    found = open_source(read_reference(str(merge(tmp_path, RECIPE, tmp_path / "a.gguf")))).config
    assert found["rope_scaling"] == scaled
    assert found["original_max_position_embeddings"] == 64
