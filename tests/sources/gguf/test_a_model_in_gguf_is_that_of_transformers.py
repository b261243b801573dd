"""Promise: names, numbers and config of a model in GGUF are those that transformers loads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf_models import EXPERTS, FAMILIES, Arrays, numbers_of, write_gguf

from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

BY_TRANSFORMERS = [name for name in FAMILIES if name not in ("gemma", "mixtral")]
"""The families that transformers converts; others are compared with what they were written from."""

DIFFERENT = {"_name_or_path", "architectures", "quantization_config", "dtype", "rms_norm_eps"}
OURS_IS_BETTER = {"sliding_window", "head_dim", "query_pre_attn_scalar"}
"""Settings that transformers leaves at the default, although the file or the family has them."""


@pytest.mark.parametrize("name", BY_TRANSFORMERS)
def test_it_is_what_transformers_loads(name: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    made = FAMILIES[name]
    write_gguf(tmp_path / "model.gguf", made, made.tensors(1), "Q8_0")
    source = open_source(read_reference(str(tmp_path)))
    ours = packed(numbers_of(source))
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    )
    state = theirs.state_dict()
    if made.tied:
        assert "lm_head.weight" not in ours
        del state["lm_head.weight"]
    assert ours.keys() == state.keys()
    for key, tensor in state.items():
        assert np.array_equal(ours[key], tensor.numpy()), key
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps(source.config))
    own = AutoConfig.from_pretrained(tmp_path / "own").to_dict()
    usual = theirs.config.to_dict()
    for key in own.keys() | usual.keys() - DIFFERENT:
        if key not in DIFFERENT and own.get(key) != usual.get(key):
            assert key in OURS_IS_BETTER, (key, own.get(key), usual.get(key))
            known = source.config.get(key)
            assert known in (*made.more.values(), made.head), key


def packed(tensors: Arrays) -> Arrays:
    """Return tensors with the matrices of experts packed, as transformers has them in memory."""
    found = {name: values for name, values in tensors.items() if ".experts." not in name}
    for name in tensors:
        if ".experts.0.gate_proj" in name:
            before = name.partition("0.gate_proj")[0]
            gate, up, down = (
                np.stack([tensors[f"{before}{n}.{part}_proj.weight"] for n in range(EXPERTS)])
                for part in ("gate", "up", "down")
            )
            found[f"{before}gate_up_proj"] = np.concatenate((gate, up), axis=1)
            found[f"{before}down_proj"] = down
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_what_was_converted(name: str, tmp_path: Path) -> None:
    made = FAMILIES[name]
    tensors = made.tensors(1)
    write_gguf(tmp_path / "model.gguf", made, tensors, "F32")
    source = open_source(read_reference(str(tmp_path / "model.gguf")))
    found = numbers_of(source)
    assert found.keys() == tensors.keys()
    assert source.config["model_type"] == made.model_type
    for key, values in tensors.items():
        assert found[key].shape == values.shape
        shifted = (values + np.float32(1)) - np.float32(1)
        kept = shifted if made.added and key.endswith("norm.weight") else values
        assert np.array_equal(found[key], kept), key
