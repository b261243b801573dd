"""An adapter has the names of one version of transformers, and its model those of another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from families import FAMILIES
from merging import tensors_of, working_in
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from zoo import ARCHITECTURES

from resumerge.recipe.references import read_reference
from resumerge.sources import open_source
from resumerge.tensors import Adapted, stored_in

EVERY = {**ARCHITECTURES, **FAMILIES}
RENAMED = ["llava", "gemma3", "qwen2_vl", "qwen2_5_vl", "llava_next", "llava_onevision"]
RENAMED += ["paligemma", "video_llava", "mistral3", "internvl", "qwen2_audio", "voxtral"]
RENAMED += ["vit", "dinov2", "deit", "beit"]


def content(tensor: Tensor) -> tuple[tuple[int, ...], float]:
    """Return the shape and the sum, which identify a tensor of random numbers."""
    return tuple(tensor.shape), tensor.double().sum().item()


@pytest.mark.parametrize("name", RENAMED)
def test_each_pair_changes_the_same_weight_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    model, generator = EVERY[name].build(seed=0), torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    for form in ("published", "loaded"):
        model.save_pretrained(tmp_path / form, save_original_format=form == "published")
    files = {form: tensors_of(tmp_path / form) for form in ("published", "loaded")}
    published = {content(tensor): key for key, tensor in files["published"].items()}
    old_name = {key: published[content(tensor)] for key, tensor in files["loaded"].items()}
    options = LoraConfig(r=2, target_modules="all-linear")
    get_peft_model(model, options).save_pretrained(tmp_path / "new")
    tensors = load_file(tmp_path / "new" / "adapter_model.safetensors")
    old = {}
    for key, tensor in tensors.items():
        module, _, role = key.removeprefix("base_model.model.").partition(".lora_")
        was = old_name[f"{module}.weight"].removesuffix(".weight")
        old[f"base_model.model.{was}.lora_{role}"] = tensor
    assert old.keys() != tensors.keys()
    (tmp_path / "old").mkdir()
    save_file(old, tmp_path / "old" / "adapter_model.safetensors")
    config = (tmp_path / "new" / "adapter_config.json").read_text()
    (tmp_path / "old" / "adapter_config.json").write_text(config)
    for form in ("published", "loaded"):
        for adapter in ("new", "old"):
            with working_in(tmp_path):
                source = open_source(read_reference(f"./{form}+./{adapter}"))
            changed = {key: t for key, t in source.tensors.items() if isinstance(t, Adapted)}
            assert len(changed) == len(tensors) // 2
            for key, tensor in changed.items():
                [named] = stored_in(tensor.a)
                meant = named.name.removeprefix("base_model.model.").replace("lora_A.", "")
                ours = key if form == "published" else old_name[key]
                assert ours == (meant if adapter == "old" else old_name[meant])
