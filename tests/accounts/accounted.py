"""Models that are changed one tensor at a time, and the accounts of recipes for them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from merging import working_in
from safetensors.numpy import save_file
from tiny_models import LLAMA, llama_shapes

from resumerge.accounts import Accounts
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.planning import Plan, estimate, read_recipe
from resumerge.sources.reader import SourceReader

CONFIG = {**LLAMA, "num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16, "head_dim": 4}
SHAPES = llama_shapes(CONFIG)
OF_EXPERTS = {
    **CONFIG,
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 3,
}

Shapes = Mapping[str, tuple[int, ...]]


def write(
    folder: Path,
    shapes: Shapes = SHAPES,
    config: Mapping[str, Any] | None = CONFIG,
    **whole: np.ndarray,
) -> None:
    """Write a model, or a checkpoint if there is no config."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(len(folder.name))
    tensors = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    save_file({**tensors, **whole}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))


def write_adapter(folder: Path, shapes: Shapes, **config: Any) -> None:
    folder.mkdir()
    tensors = {f"base_model.model.{name}": np.ones(s, np.float32) for name, s in shapes.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, **config}
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def write_tokenizer(folder: Path, tokens: int, first: int = 0) -> None:
    """Write a tokenizer of numbered words, of which the first has the number `first`."""
    words = {f"w{first + number}": number for number in range(tokens)}
    made = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": words, "unk_token": f"w{first}"},
        "added_tokens": [],
        **dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder")),
    }
    (folder / "tokenizer.json").write_text(json.dumps(made))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": f"w{first}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


MLP = ("gate_proj", "up_proj", "down_proj")


def mixture_of(experts: int) -> dict[str, tuple[int, ...]]:
    shapes = {name: shape for name, shape in SHAPES.items() if ".mlp." not in name}
    for layer in range(2):
        at = f"model.layers.{layer}.block_sparse_moe"
        shapes[f"{at}.gate.weight"] = (experts, 8)
        for expert in range(experts):
            for old, new in zip(MLP, ("w1", "w3", "w2")):
                whole = SHAPES[f"model.layers.{layer}.mlp.{old}.weight"]
                shapes[f"{at}.experts.{expert}.{new}.weight"] = whole
    return shapes


def half_packed() -> dict[str, tuple[int, ...]]:
    """Return the shapes of a mixture with packed experts in one of two layers."""
    of_layer = "model.layers.0.block_sparse_moe.experts."
    apart = {name: shape for name, shape in mixture_of(3).items() if of_layer not in name}
    packed = {"gate_up_proj": (3, 32, 8), "down_proj": (3, 8, 16)}
    return apart | {f"model.layers.0.mlp.experts.{name}": shape for name, shape in packed.items()}


def planned(models: Path, recipe: str, **options: Any) -> Plan:
    """Return the plan of a recipe that names models by their folders."""
    file = models / "recipe.yaml"
    file.write_text(recipe)
    with working_in(models):
        return Session(Options(**options)).plan(read_recipe(file))


def accounts(models: Path, recipe: str, **options: Any) -> Accounts:
    """Return the accounts of a recipe that names models by their folders."""
    return planned(models, recipe, **options).accounts


def told(found: Accounts) -> dict[str, dict[str, str]]:
    """Return the reason of each tensor that is not used, by model."""
    return {
        model.model: {
            name: reason.value for reason, names in model.unused.items() if reason for name in names
        }
        for model in found.models
        if model.unused
    }


def header(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        [size] = struct.unpack("<Q", opened.read(8))
        found = json.loads(opened.read(size))
    found.pop("__metadata__", None)
    for entry in found.values():
        entry["data_offsets"] = [8 + size + offset for offset in entry["data_offsets"]]
    return dict(found)


def spoil(file: Path, names: list[str]) -> bytes:
    """Multiply tensors of float32 by -3, and return the file's content before."""
    before = file.read_bytes()
    data = bytearray(before)
    found = header(file)
    for name in names:
        start, stop = found[name]["data_offsets"]
        assert found[name]["dtype"] == "F32"
        values = np.frombuffer(before[start:stop], np.float32)
        data[start:stop] = (-3 * values).astype(np.float32).tobytes()
    file.write_bytes(data)
    return before


def computed(plan: Plan) -> dict[str, bytes]:
    """Compute the bytes of every tensor of the output from the present files of the models."""
    reader = SourceReader(plan.sources)
    evaluator = Evaluator(plan, estimate(plan), reader, hashes=False)
    found = {}
    for unit in plan.units:
        preparation = evaluator.prepare(unit)
        found[unit.name] = bytes(evaluator.compute(unit, range(unit.blocks), preparation)[0])
    return found
