"""Promise: adapters of packed experts or of single matrices apply to models of either form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from merging import merge, tensors_of, working_in
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
EXPERTS, RANK = 4, 2
TINY: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 48,
    "num_experts_per_tok": 2,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe": ("Qwen3Moe", {"moe_intermediate_size": 24, "num_experts": EXPERTS}),
    "mixtral": ("Mixtral", {"intermediate_size": 24, "num_local_experts": EXPERTS}),
    "as_wide_as_long": ("GptOss", {"intermediate_size": 16, "num_local_experts": EXPERTS}),
}


def write_base(folder: Path, kind: str, packed: bool = False) -> Any:
    """Write a tiny mixture as transformers saves it, packed or not; return its class."""
    name, options = MODELS[kind]
    config = getattr(transformers, f"{name}Config")(**TINY, **options)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.1
    model.save_pretrained(folder / "base", save_original_format=not packed)
    return type(model)


def write_adapter(folder: Path, model: Any, **options: Any) -> dict[str, Tensor]:
    """Write an adapter that peft makes, and return the tensors that peft's merge gives."""
    torch.manual_seed(1)
    base = model.from_pretrained(folder / "base")
    settings = LoraConfig(r=RANK, lora_alpha=3, init_lora_weights=False, **options)
    get_peft_model(base, settings).save_pretrained(folder / "adapter")
    base = model.from_pretrained(folder / "base")
    merged = PeftModel.from_pretrained(base, folder / "adapter").merge_and_unload()
    return dict(merged.state_dict())


def compare(folder: Path, model: Any, theirs: dict[str, Tensor]) -> None:
    """Check that the merged model has these weights, and the names and shapes of its base."""
    out = merge(folder, COPY, folder / "out")
    shapes = {name: tensor.shape for name, tensor in tensors_of(folder / "base").items()}
    assert {name: tensor.shape for name, tensor in tensors_of(out).items()} == shapes
    ours = model.from_pretrained(out).state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "targets", [["q_proj", "gate_proj", "up_proj", "down_proj"], ["down_proj"], ["gate"]], ids=len
)
def test_modules_that_peft_turns_into_parameters(
    targets: list[str], packed: bool, tmp_path: Path
) -> None:
    model = write_base(tmp_path, "qwen3_moe", packed)
    compare(tmp_path, model, write_adapter(tmp_path, model, target_modules=targets))


@pytest.mark.parametrize("kind", MODELS)
def test_parameters_that_are_named(kind: str, tmp_path: Path) -> None:
    """Parameters of gpt-oss are (in, out); the shape of a square ``down_proj`` does not show it."""
    model = write_base(tmp_path, kind)
    names = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    options: dict[str, Any] = {"target_modules": [], "target_parameters": names}
    options["alpha_pattern"] = {"mlp.experts.down_proj": 5}
    compare(tmp_path, model, write_adapter(tmp_path, model, **options))


@pytest.mark.parametrize("kind", MODELS)
def test_one_parameter_alone(kind: str, tmp_path: Path) -> None:
    model = write_base(tmp_path, kind)
    options: dict[str, Any] = {"target_modules": [], "target_parameters": ["experts.down_proj"]}
    compare(tmp_path, model, write_adapter(tmp_path, model, **options))


def write_single_matrices(folder: Path, mixtral: bool) -> dict[str, Tensor]:
    """Write an adapter as transformers 4 made it, with a pair for each expert's matrix but one."""
    generator = torch.Generator().manual_seed(2)
    head = "model.layers.{}.block_sparse_moe" if mixtral else "model.layers.{}.mlp"
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    tensors = {}
    for layer in range(2):
        for expert in range(EXPERTS):
            for name, rows, columns in zip(names, (24, 24, 16), (16, 16, 24)):
                key = f"base_model.model.{head.format(layer)}.experts.{expert}.{name}.lora_"
                tensors[f"{key}A.weight"] = torch.randn(RANK, columns, generator=generator)
                tensors[f"{key}B.weight"] = torch.randn(rows, RANK, generator=generator)
    del tensors[f"{key}A.weight"], tensors[f"{key}B.weight"]
    write_tensors(folder, tensors)
    return tensors


def write_tensors(folder: Path, tensors: dict[str, Tensor], **config: Any) -> None:
    (folder / "adapter").mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter" / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, **config}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])
def test_single_matrices(kind: str, packed: bool, tmp_path: Path) -> None:
    model = write_base(tmp_path / "separate", kind)
    adapter = write_single_matrices(tmp_path, kind == "mixtral")
    right = tensors_of(tmp_path / "separate" / "base")
    for key in adapter:
        if "lora_A" in key:
            name = key.removeprefix("base_model.model.").replace("lora_A.", "")
            right[name] += 2 * adapter[key.replace("lora_A", "lora_B")] @ adapter[key]
    save_file(
        right, tmp_path / "separate" / "base" / "model.safetensors", metadata={"format": "pt"}
    )
    theirs = model.from_pretrained(tmp_path / "separate" / "base").state_dict()
    write_base(tmp_path, kind, packed)
    compare(tmp_path, model, dict(theirs))


@pytest.mark.parametrize("packed", [False, True])
def test_matrices_that_an_older_peft_made_the_other_way_round(packed: bool, tmp_path: Path) -> None:
    """Older versions of peft assumed that every parameter is stored as (in, out)."""
    model = write_base(tmp_path, "qwen3_moe", packed)
    right = dict(model.from_pretrained(tmp_path / "base").state_dict())
    generator, tensors = torch.Generator().manual_seed(2), {}
    for layer in range(2):
        at = f"model.layers.{layer}.mlp.experts"
        for name, wrapped in (("gate_up_proj", ".base_layer"), ("down_proj", "")):
            experts, rows, columns = right[f"{at}.{name}"].shape
            a = torch.randn(RANK * experts, rows, generator=generator) * 0.1
            b = torch.randn(columns, RANK * experts, generator=generator) * 0.1
            tensors[f"base_model.model.{at}{wrapped}.lora_A.weight"] = a
            tensors[f"base_model.model.{at}{wrapped}.lora_B.weight"] = b
            a, b = a.view(experts, RANK, rows), b.view(columns, RANK, experts)
            change = torch.einsum("o r e, e r i -> e i o", b, a)
            right[f"{at}.{name}"] = right[f"{at}.{name}"] + 2 * change
    write_tensors(tmp_path, tensors, target_parameters=["gate_up_proj", "down_proj"])
    compare(tmp_path, model, right)


@pytest.mark.parametrize("gone", ["base_layer.lora_A.weight", "experts.lora_", "9.down_proj"])
def test_a_pair_too_few_or_an_expert_too_many_is_refused(gone: str, tmp_path: Path) -> None:
    model = write_base(tmp_path, "qwen3_moe")
    write_adapter(tmp_path, model, target_modules=["gate_proj", "up_proj", "down_proj"])
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(file).items() if gone not in name}
    at = "base_model.model.model.layers.1.mlp.experts.9.down_proj.lora_"
    if gone == "9.down_proj":
        tensors |= {f"{at}A.weight": torch.ones(2, 24), f"{at}B.weight": torch.ones(16, 2)}
    save_file(tensors, file)
    with working_in(tmp_path), pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.experts"):
        open_source(read_reference("base+adapter"))
