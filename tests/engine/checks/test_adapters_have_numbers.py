"""Promise: an adapter with numbers that are not finite is refused before it is merged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from merging import merge, tensors_of
from safetensors.torch import save_file
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model

from resumerge.errors import InputError

QUERY = "base_model.model.model.layers.0.self_attn.q_proj"
RECIPES = {
    "alone": "merge_method: passthrough\nmodels: [{model: base+adapter}]\n",
    "on a stage": "name: s\nmerge_method: passthrough\nmodels: [{model: base}]\n---\n"
    "merge_method: passthrough\nmodels: [{model: s+adapter}]\n",
}


def write(folder: Path, dtype: torch.dtype, spoilt: str = "", value: float = 0.0) -> None:
    write_model(folder / "base", random_tensors(llama_shapes(LLAMA), 0))
    (folder / "adapter").mkdir()
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
    (folder / "adapter/adapter_config.json").write_text(json.dumps(config))
    shapes = {"lora_A": (2, 16), "lora_B": (16, 2)}
    tensors = {f"{QUERY}.{n}.weight": torch.ones(s, dtype=dtype) for n, s in shapes.items()}
    for name, tensor in tensors.items():
        if spoilt and spoilt in name:
            tensor[-1, -1] = value
    save_file(tensors, folder / "adapter/adapter_model.safetensors")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("spoilt", "value"), [("lora_A", math.nan), ("lora_B", -math.inf)])
def test_it_is_refused_with_the_tensor(
    recipe: str, dtype: torch.dtype, spoilt: str, value: float, tmp_path: Path
) -> None:
    write(tmp_path, dtype, spoilt, value)
    with pytest.raises(InputError, match=r"numbers that are not finite") as caught:
        merge(tmp_path, RECIPES[recipe], tmp_path / "out")
    [problem] = caught.value.problems
    assert problem.where == "adapter" and problem.found == f"{QUERY}.{spoilt}.weight"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("recipe", RECIPES)
def test_large_numbers_are_numbers(recipe: str, tmp_path: Path) -> None:
    write(tmp_path, torch.float32, "lora_A", 3e38)
    assert tensors_of(merge(tmp_path, RECIPES[recipe], tmp_path / "out"))
