"""Recipes of several documents over one family of models, and how to merge them step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from merging import merge
from safetensors.torch import save_file
from tiny_models import LLAMA, finetuned, llama_shapes, random_tensors, write_model
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = [f"w{number}" for number in range(40)]
"""The words of all models; each has eight words of its own, and `half` those of `base`."""


def write_models(folder: Path) -> Path:
    """Write `base`, its fine-tunes `math` and `code`, and `half` in bfloat16, with tokenizers."""
    base = random_tensors(llama_shapes(LLAMA), seed=0)
    family = {"base": base, "math": finetuned(base, 1), "code": finetuned(base, 2)}
    family["half"] = {name: tensor.bfloat16() for name, tensor in finetuned(base, 3).items()}
    for name, tensors in family.items():
        dtype = "bfloat16" if name == "half" else "float32"
        write_model(folder / name, tensors, {**LLAMA, "dtype": dtype})
        own = [f"{name}{number}" for number in range(8)] if name != "half" else []
        words = [*WORDS, *(own or [f"base{number}" for number in range(8)])]
        vocabulary = {word: number for number, word in enumerate(words)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[0]))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.save(str(folder / name / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": WORDS[0]}
        (folder / name / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_adapter(folder: Path) -> Path:
    """Write a LoRA adapter of two modules, for any of the models."""
    draw = torch.Generator().manual_seed(7)
    shapes, rank, tensors = llama_shapes(LLAMA), 2, {}
    for module in ("model.layers.1.mlp.up_proj", "model.layers.3.self_attn.q_proj"):
        rows, columns = shapes[f"{module}.weight"]
        for name, shape in (("lora_A", (rank, columns)), ("lora_B", (rows, rank))):
            key = f"base_model.model.{module}.{name}.weight"
            tensors[key] = torch.empty(shape).normal_(0.0, 0.1, generator=draw)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 4}
    config["target_modules"] = ["up_proj", "q_proj"]
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def merge_stages(models: Path, text: str, folder: Path, **options: Any) -> Path:
    """Merge each document by a run of its own, in their order, and return the last one's output.

    The folders of their outputs replace the names of stages.
    """
    folder.mkdir(parents=True)
    written: dict[str, Path] = {}
    out = folder
    for number, document in enumerate(documents(text)):
        name = document.pop("name", f"document{number}")
        out = merge(models, yaml.safe_dump(_placed(document, written)), folder / name, **options)
        written[name] = out
    return out


def _placed(value: Any, written: dict[str, Path], key: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _placed(item, written, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_placed(item, written, key) for item in value]
    if key in ("model", "base_model", "source", "tokenizer_source"):
        base, plus, adapter = str(value).partition("+")
        return f"{written.get(base, base)}{plus}{adapter}"
    return value


def _models(*entries: str) -> str:
    lines = ["models:"]
    for entry in entries:
        model, _, parameters = entry.partition(" ")
        given = f", parameters: {{{parameters}}}" if parameters else ""
        lines.append(f"  - {{model: {model}{given}}}")
    return "\n".join(lines) + "\n"


def _slices(*entries: str) -> str:
    lines = ["slices:"]
    for entry in entries:
        models, _, layers = entry.partition(" ")
        given = ", ".join(f"{{model: {m}, layer_range: {layers}}}" for m in models.split("&"))
        lines.append(f"  - sources: [{given}]")
    return "\n".join(lines) + "\n"


_LINEAR = "merge_method: linear\ndtype: float32\n"
_FIRST = "name: first\n" + _LINEAR + _models("./math weight: 0.7", "./code weight: 0.4")
_SECOND = "name: second\n" + _LINEAR + _models("./base weight: 1.0", "./code weight: 0.5")
_TIES = "merge_method: ties\nbase_model: ./base\ndtype: float32\n"
_HALF = "weight: 0.5, density: 0.5"
_STACK = "merge_method: passthrough\ndtype: float32\n"


def _joined(*parts: str) -> str:
    return "---\n".join(parts)


RECIPES: dict[str, str] = {
    "linear of linear": _joined(_FIRST, _LINEAR + _models("first weight: 0.6", "./base weight: 1")),
    "linear of two": _joined(
        _FIRST, _SECOND, _LINEAR + _models("first weight: 0.6", "second weight: 1")
    ),
    "three in a row": _joined(
        _FIRST,
        "name: second\n" + _LINEAR + _models("first weight: 0.3", "./base weight: 1"),
        _LINEAR + _models("second weight: 0.6", "./code weight: 0.2"),
    ),
    "five": _joined(
        _FIRST,
        _SECOND,
        "name: third\n" + _LINEAR + _models("first weight: 1", "second weight: 2"),
        "name: fourth\n" + _LINEAR + _models("third weight: 1", "first weight: 2"),
        _LINEAR + _models("fourth weight: 0.6", "second weight: 0.2", "./base weight: 0.1"),
    ),
    "used twice": _joined(
        _FIRST,
        "name: second\n" + _LINEAR + _models("first weight: 1", "./base weight: 1"),
        _LINEAR + _models("first weight: 0.6", "second weight: 0.2"),
    ),
    "ties of a stage": _joined(_FIRST, _TIES + _models(f"first {_HALF}", f"./code {_HALF}")),
    "ties of ties": _joined(
        "name: first\n" + _TIES + _models(f"./math {_HALF}", f"./code {_HALF}"),
        _TIES + _models(f"first {_HALF}", "./code weight: 0.3, density: 0.7"),
    ),
    "a stage as the base": _joined(
        _SECOND,
        "merge_method: ties\nbase_model: second\ndtype: float32\n"
        + _models(f"./math {_HALF}", f"./code {_HALF}"),
    ),
    "linear of ties": _joined(
        "name: first\n" + _TIES + _models(f"./math {_HALF}", f"./code {_HALF}"),
        _LINEAR + _models("first weight: 0.6", "./base weight: 0.5"),
    ),
    "task arithmetic": _joined(
        _FIRST,
        "merge_method: task_arithmetic\nbase_model: ./base\ndtype: float32\n"
        + _models("first weight: 0.6", "./code weight: 0.5"),
    ),
    "slerp of stages": _joined(
        _FIRST,
        _SECOND,
        "merge_method: slerp\nbase_model: first\nparameters: {t: 0.3}\ndtype: float32\n"
        + _models("first", "second"),
    ),
    "slerp in a stage": _joined(
        "name: first\nmerge_method: slerp\nbase_model: ./math\nparameters: {t: 0.3}\n"
        "dtype: float32\n" + _models("./math", "./code"),
        _LINEAR + _models("first weight: 0.6", "./base weight: 0.5"),
    ),
    "model stock": _joined(
        _FIRST,
        "merge_method: model_stock\nbase_model: ./base\ndtype: float32\n"
        + _models("first", "./code"),
    ),
    "breadcrumbs": _joined(
        _FIRST,
        "merge_method: breadcrumbs\nbase_model: ./base\ndtype: float32\n"
        + _models("first weight: 1, density: 0.8, gamma: 0.05", "./code weight: 1, density: 0.8"),
    ),
    "multislerp": _joined(
        _FIRST,
        "merge_method: multislerp\ndtype: float32\n"
        + _models("first weight: 0.5", "./code weight: 0.5"),
    ),
    "karcher": _joined(
        _FIRST, "merge_method: karcher\ndtype: float32\n" + _models("first", "./code")
    ),
    "sce": _joined(
        _FIRST,
        "merge_method: sce\nbase_model: ./base\nparameters: {select_topk: 0.5}\ndtype: float32\n"
        + _models("first", "./code"),
    ),
    "a stack as a stage": _joined(
        "name: first\n" + _STACK + _slices("./math [0,3]", "./code [2,4]"),
        _LINEAR + _models("first weight: 1"),
    ),
    "slerp of a stack": _joined(
        "name: first\n" + _STACK + _slices("./math [0,3]", "./code [1,4]"),
        "name: second\n" + _STACK + _slices("./code [0,3]", "./base [1,4]"),
        "merge_method: slerp\nbase_model: first\nparameters: {t: [0, 0.5, 1]}\ndtype: float32\n"
        + _models("first", "second"),
    ),
    "slices of a stage": _joined(
        _FIRST, _STACK + _slices("first [0,2]", "./base [1,3]", "first [3,4]")
    ),
    "slices of slices": _joined(
        "name: first\n" + _STACK + _slices("./math [0,3]", "./code [1,4]"),
        _STACK + _slices("first [0,4]", "first [2,6]"),
    ),
    "a layer that is computed": _joined(
        "name: first\n" + _STACK + _slices("./math [0,3]", "./code [1,4]"),
        _LINEAR.replace("dtype", "parameters: {weight: 0.5}\ndtype")
        + _slices("first&./code [1,3]", "first&./base [0,2]"),
    ),
    "in bfloat16": _joined(
        _FIRST.replace("float32", "bfloat16"),
        _LINEAR.replace("float32", "bfloat16") + _models("first weight: 0.6", "./half weight: 1"),
    ),
    "bfloat16 within float32": _joined(
        _FIRST.replace("float32", "bfloat16"),
        _LINEAR + _models("first weight: 0.6", "./base weight: 1"),
    ),
    "float32 within bfloat16": _joined(
        _FIRST,
        _LINEAR.replace("float32", "bfloat16") + _models("first weight: 0.6", "./half weight: 1"),
    ),
    "an output dtype": _joined(
        _FIRST + "out_dtype: bfloat16\n",
        _LINEAR + "out_dtype: float16\n" + _models("first weight: 0.6", "./half weight: 1"),
    ),
    "a union in a stage": _joined(
        _FIRST + "tokenizer_source: union\n",
        _LINEAR + "tokenizer_source: union\n" + _models("first weight: 0.6", "./base weight: 1"),
    ),
    "a union of stages": _joined(
        _FIRST + "tokenizer_source: ./math\n",
        _SECOND + "tokenizer_source: ./base\n",
        _LINEAR + "tokenizer: {source: union}\n" + _models("first weight: 0.6", "second weight: 1"),
    ),
    "the tokenizer of a stage": _joined(
        _FIRST + "tokenizer_source: union\n",
        "merge_method: linear\ndtype: float32\ntokenizer_source: first\n"
        + _models("./base weight: 0.6", "first weight: 1"),
    ),
    "in any order": _joined(
        _LINEAR + _models("second weight: 0.6", "./code weight: 0.2"),
        "name: second\n" + _LINEAR + _models("first weight: 0.3", "./base weight: 1"),
        _FIRST,
    ),
}
"""The recipes by what they test. All models have the same layers."""
