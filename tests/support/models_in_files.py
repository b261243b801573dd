"""Models in several weight files, and adapters on some of their layers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tiny_models import LLAMA, llama_shapes, random_tensors
from torch import Tensor

SIX_LAYERS: dict[str, Any] = {**LLAMA, "num_hidden_layers": 6}
FILES = 8
"""The files of `write_in_files`: the embedding, each of six layers, the norm with the head."""

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"


def write_in_files(
    folder: Path,
    config: Mapping[str, Any] = SIX_LAYERS,
    dtype: str = "bfloat16",
    name: str = "model-{:05}-of-{:05}.safetensors",
) -> dict[str, Tensor]:
    """Write a model with a file per layer, one before and one after, and return its tensors."""
    tensors = random_tensors(llama_shapes(config), 0, dtype)
    layers = config["num_hidden_layers"]
    files: list[dict[str, Tensor]] = [{} for _ in range(layers + 2)]
    for key, tensor in tensors.items():
        part = key.split(".")
        place = int(part[2]) + 1 if part[1] == "layers" else layers + 1
        files[0 if "embed" in key else place][key] = tensor
    names = [name.format(number, len(files)) for number in range(1, len(files) + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    for file, part_of_it in zip(names, files):
        save_file(part_of_it, folder / file, metadata={"format": "pt", "of": file})
    index = {key: file for file, some in zip(names, files) for key in some}
    text = json.dumps({"metadata": {}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": dtype}))
    return tensors


def write_adapter(
    folder: Path, tensors: Mapping[str, Tensor], layers: Sequence[int], **more: Any
) -> Path:
    """Write a LoRA adapter on q_proj and down_proj of some layers, as peft saves it."""
    modules = [
        name.removesuffix(".weight")
        for name in tensors
        if name.endswith(("q_proj.weight", "down_proj.weight"))
        and int(name.split(".")[2]) in layers
    ]
    shapes = {}
    for module in modules:
        rows, columns = tensors[f"{module}.weight"].shape
        shapes[f"base_model.model.{module}.lora_A.weight"] = (2, columns)
        shapes[f"base_model.model.{module}.lora_B.weight"] = (rows, 2)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(random_tensors(shapes, 1), folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 64,
        "target_modules": ["q_proj", "down_proj"],
        "layers_to_transform": [*layers],
        "base_model_name_or_path": "base",
        **more,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
