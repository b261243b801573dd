"""An adapter whose names have more in them than peft leaves is the same adapter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from adapters import LlamaForCausalLM, write_adapter, write_base
from merging import merge, tensors_of, working_in
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

WEIGHTS = "adapter_model.safetensors"
OPTIONS = {"target_modules": ["q_proj", "down_proj"], "modules_to_save": ["lm_head"]}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    write_base(folder / "base", "llama")
    write_adapter(folder / "peft", folder / "base", "llama", use_dora=True, **OPTIONS)
    return folder


def merged(models: Path, adapter: str, out: Path) -> dict[str, Tensor]:
    recipe = f"merge_method: passthrough\nmodels: [{{model: ./base+./{adapter}}}]\n"
    return tensors_of(merge(models, recipe, out))


def renamed(models: Path, name: str, change: Callable[[str], str]) -> None:
    """Write the adapter under other names."""
    shutil.copytree(models / "peft", models / name, dirs_exist_ok=True)
    tensors = load_file(models / "peft" / WEIGHTS)
    save_file({change(key): tensor for key, tensor in tensors.items()}, models / name / WEIGHTS)


RENAMES: dict[str, Callable[[str], str]] = {
    "compiled": lambda name: f"_orig_mod.{name}",
    "layers are compiled": lambda name: name.replace(".self_attn", "._orig_mod.self_attn"),
    "sharded": lambda name: name.replace(".mlp", "._fsdp_wrapped_module.mlp"),
    "recomputed": lambda name: name.replace(
        "layers.1.", "layers.1._checkpoint_wrapped_module._fsdp_wrapped_module."
    ),
    "the adapter has a name": lambda name: (
        name.replace("_A.weight", "_A.style.weight")
        .replace("_B.weight", "_B.style.weight")
        .replace("_vector", "_vector.style.weight")
        .replace("lm_head.", "lm_head.modules_to_save.style.")
    ),
}


@pytest.mark.parametrize("how", RENAMES)
def test_the_weights_are_the_same(how: str, models: Path, tmp_path: Path) -> None:
    renamed(models, "renamed", RENAMES[how])
    ours = merged(models, "renamed", tmp_path / "out")
    theirs = merged(models, "peft", tmp_path / "theirs")
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_the_state_of_a_wrapped_model_is_its_adapter(models: Path, tmp_path: Path) -> None:
    """``model.state_dict()`` has the base's weights too, and the adapter's name."""
    model = get_peft_model(
        LlamaForCausalLM.from_pretrained(models / "base"), LoraConfig(r=4, **OPTIONS), "style"
    )
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += torch.randn_like(parameter) * 0.1
    (models / "state").mkdir()
    save_file({k: v.clone() for k, v in model.state_dict().items()}, models / "state" / WEIGHTS)
    model.save_pretrained(models / "saved")
    said = (models / "saved" / "style" / "adapter_config.json").read_text()
    (models / "state" / "adapter_config.json").write_text(said)
    ours = merged(models, "state", tmp_path / "out")
    theirs = merged(models, "saved/style", tmp_path / "theirs")
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_two_adapters_in_one_file_are_refused(models: Path) -> None:
    renamed(models, "two", RENAMES["the adapter has a name"])
    one = load_file(models / "two" / WEIGHTS)
    other = {key.replace(".style", ".other"): tensor.clone() for key, tensor in one.items()}
    save_file({**one, **other}, models / "two" / WEIGHTS)
    with working_in(models), pytest.raises(InputError, match="names that mean the same"):
        open_source(read_reference("./base+./two"))


@pytest.mark.parametrize("said", [{"r": 8}, {"rank_pattern": {"layers.1.mlp.down_proj": 2}}])
def test_a_rank_that_the_config_does_not_say_is_refused(
    said: dict[str, object], models: Path
) -> None:
    """The scale follows from the rank, and peft does not load an adapter with another one."""
    shutil.copytree(models / "peft", models / "ranks", dirs_exist_ok=True)
    config = json.loads((models / "peft" / "adapter_config.json").read_text())
    (models / "ranks" / "adapter_config.json").write_text(json.dumps(config | said))
    with working_in(models), pytest.raises(InputError, match=r"down_proj: rank 4"):
        open_source(read_reference("./base+./ranks"))
