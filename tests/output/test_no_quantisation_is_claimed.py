"""Promise: a config never says that plain weights are quantised; what is left out is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_plans import llama, plan
from merging import merge, working_in
from safetensors.torch import save_file

import resumerge
from resumerge.output.config import output_config

TWO = (
    "merge_method: linear\n"
    "models: [{model: a, parameters: {weight: 1}}, {model: b, parameters: {weight: 1}}]\n"
)
STATED: list[dict[str, Any]] = [
    {"quantization_config": {"quant_method": "gptq", "bits": 4}},
    {"quantization_config": {"bits": 4}},
    {"compression_config": {"quant_method": "compressed-tensors"}},
    {"text_config": {"quantization_config": {"quant_method": "fp8"}}},
]
NAMES = ["gptq", "quantization_config", "compressed-tensors", "fp8"]


@pytest.mark.parametrize(("stated", "name"), list(zip(STATED, NAMES)), ids=NAMES)
def test_the_config_of_plain_weights_states_no_quantisation(
    stated: dict[str, Any], name: str
) -> None:
    found = plan(TWO, llama("a", config=stated), llama("b"))
    assert "quantization_config" not in json.dumps(output_config(found))
    assert "compression_config" not in output_config(found)
    assert [note for note in found.notes if "quantised" in note] == [
        f"the config.json of a says that its weights are quantised ({name}), and they are not: "
        "the output's leaves that out"
    ]


@pytest.mark.parametrize("of_b", [{}, STATED[0]])
def test_what_leaves_no_trace_in_the_output_is_not_told(of_b: dict[str, Any]) -> None:
    found = plan(TWO, llama("a", config={"quantization_config": None}), llama("b", config=of_b))
    assert not [note for note in found.notes if "quantised" in note]
    assert output_config(found)["quantization_config"] is None


def test_nor_does_the_config_of_a_pipelines_component(tmp_path: Path) -> None:
    config = {"sample_size": 8, "quantization_config": {"quant_method": "bitsandbytes"}}
    for name in "ab":
        unet = tmp_path / name / "unet"
        unet.mkdir(parents=True)
        index = {"_class_name": "P", "unet": ["diffusers", "UNet2DModel"]}
        (tmp_path / name / "model_index.json").write_text(json.dumps(index))
        (unet / "config.json").write_text(json.dumps(config))
        save_file({"conv.weight": torch.ones(4)}, unet / "diffusion_pytorch_model.safetensors")
    out = merge(tmp_path, TWO, tmp_path / "out")
    assert json.loads((out / "unet" / "config.json").read_text()) == {"sample_size": 8}
    with working_in(tmp_path):
        [note] = [n for n in resumerge.plan("out.yaml")["notes"] if "quantised" in n]
    assert note.startswith("the unet/config.json of a says") and "(bitsandbytes)" in note


def test_one_weight_file_is_not_told_to_lack_files_beside_it(tmp_path: Path) -> None:
    for name in "ab":
        tensors = {"model.embed_tokens.weight": torch.ones(96, 4), "lm_head.weight": torch.ones(4)}
        save_file(tensors, tmp_path / f"{name}.safetensors")
    text = TWO.replace("model: a", "model: a.safetensors").replace(
        "model: b", "model: b.safetensors"
    )
    (tmp_path / "r.yaml").write_text(text)
    with working_in(tmp_path):
        assert resumerge.plan("r.yaml")["notes"] == ["tensors are matched by name"]
