"""Promise: scaled positions are those of the original's config.json, or the file is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from resumerge.errors import InputError
from resumerge.sources.gguf.metadata import Metadata
from resumerge.sources.gguf.rope import LONG, OF_LLAMA, SHORT, scaled_positions
from resumerge.tensors import Stored

HEAD, THETA = 64, 500000.0


def scaled(values: Mapping[str, Any], tensors: Mapping[str, np.ndarray] = {}) -> dict[str, Any]:
    metadata = Metadata(
        "model.gguf",
        {
            "general.architecture": "llama",
            **{f"llama.rope.scaling.{key}": value for key, value in values.items()},
        },
    )
    stored = {n: Stored(n, "F32", a.shape, "model.gguf", 0) for n, a in tensors.items()}
    return scaled_positions(
        metadata, stored, lambda tensor: tensors[tensor.name].tobytes(), HEAD, THETA
    )


def test_factors_of_llama_3_are_recognised() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    said = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        head_dim=HEAD,
        rope_parameters={"rope_theta": THETA, **said},
    )
    scaled_by, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    usual = THETA ** -(np.arange(0, HEAD, 2) / HEAD)
    factors = (usual / scaled_by.numpy()).astype(np.float32)
    assert scaled({}, {OF_LLAMA: factors}) == {"rope_scaling": said}
    factors[3] *= 1.5
    with pytest.raises(InputError, match="not those of Llama 3"):
        scaled({}, {OF_LLAMA: factors})


def test_other_ways_to_scale() -> None:
    assert scaled({}) == scaled({"type": "none"}) == {}
    assert scaled({"type": "linear", "factor": 8.0}) == {
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}
    }
    assert scaled({"type": "yarn", "factor": 4.0, "original_context_length": 4096}) == {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 4096,
        }
    }
    long, short = (np.linspace(1, last, HEAD // 2, dtype=np.float32) for last in (9, 2))
    found = scaled({"original_context_length": 4096}, {LONG: long, SHORT: short})
    assert found["original_max_position_embeddings"] == 4096
    assert found["rope_scaling"]["rope_type"] == "longrope"
    assert np.array_equal(np.float32(found["rope_scaling"]["long_factor"]), long)
    for unknown in ({"type": "su"}, {"type": "yarn", "factor": 4.0}):
        with pytest.raises(InputError, match="scaled in a way that is not read"):
            scaled(unknown)
