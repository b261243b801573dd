"""Models with defects that downloads, trainers and mistakes cause, and recipes for them.

Each defect has words of the message that reports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from accounted import CONFIG, OF_EXPERTS, SHAPES, half_packed, mixture_of, write, write_adapter
from safetensors import TensorSpec, serialize_file
from safetensors.numpy import load_file, save_file

BOTH = "merge_method: linear\nparameters: {weight: 0.5}\nmodels: [{model: a}, {model: b}]\n"
HEAD, NORM = "lm_head.weight", "model.norm.weight"
UP = "model.layers.0.mlp.up_proj.weight"
MTP = {f"model.layers.2.{rest}": shape for rest, shape in {"eh_proj.weight": (8, 16)}.items()} | {
    name.replace("layers.0", "layers.2"): shape
    for name, shape in SHAPES.items()
    if ".layers.0." in name
}
OF_MTP = {**CONFIG, "model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "text_config": {**CONFIG, "vocab_size": 48},
    "vision_config": {"num_hidden_layers": 3},
}
TEXT = {f"language_model.{name}": shape for name, shape in SHAPES.items()}
VISION = {f"vision_tower.layers.{layer}.fc.weight": (4, 4) for layer in range(3)}
Tensors = Mapping[str, tuple[int, ...]]


Build = Callable[[Path], str]


def two(
    first: Tensors = SHAPES,
    second: Tensors = SHAPES,
    config: Mapping[str, Any] = CONFIG,
    other: Mapping[str, Any] | None = None,
    recipe: str = BOTH,
) -> Build:
    """Return a function that writes models `a` and `b` with these tensors, and returns a recipe."""

    def build(models: Path) -> str:
        write(models / "a", first, config)
        write(models / "b", second, other or config)
        return recipe

    return build


def without(shapes: Tensors, *ends: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if not name.endswith(ends)}


def adapter(shapes: Tensors, **config: Any) -> Build:
    def build(models: Path) -> str:
        write(models / "a")
        write_adapter(models / "l", shapes, **config)
        return "merge_method: passthrough\nmodels: [{model: a+l}]\n"

    return build


def lora(at: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{at}.lora_A.weight": (1, columns), f"{at}.lora_B.weight": (rows, 1)}


def swapped_shards(models: Path) -> str:
    """Write two models; the index of `b` swaps the names of its two files."""
    for name in "ab":
        write(models / name)
    (models / "b" / "model.safetensors").unlink()
    halves = [dict(list(SHAPES.items())[:10]), dict(list(SHAPES.items())[10:])]
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for half, file in zip(halves, files):
        write(models / "part", half)
        (models / "part" / "model.safetensors").rename(models / "b" / file)
        (models / "part" / "config.json").unlink()
        (models / "part").rmdir()
    index = {name: file for half, file in zip(halves, reversed(files)) for name in half}
    (models / "b" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return BOTH


SLICES = """
merge_method: passthrough
slices:
  - sources: [{model: a, layer_range: [0, 1]}]
  - sources: [{model: b, layer_range: [0, 1]}]
"""
OF_BASE = "merge_method: passthrough\nbase_model: a\nmodels: [{model: b}]\n"
EXPERTS = mixture_of(3)
LONGER = {n.replace(".layers.1.", ".layers.2."): shape for n, shape in SHAPES.items()}

ADDED = (
    "base_model: a\nmodels: [{model: b, parameters: {weight: 1}}]\nmerge_method: task_arithmetic\n"
)
DARE = """
merge_method: dare_ties
base_model: a
dtype: float16
models: [{model: b, parameters: {weight: 1, density: 0.1}}]
"""


def cut_off(models: Path) -> str:
    """Write two models; the file of `b` ends before its last tensor does."""
    two()(models)
    file = models / "b" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    return BOTH


def other_shard(models: Path) -> str:
    """Write two models; `b` has a matrix of a wider model, as if a file were of another one."""
    return two(second={**SHAPES, UP: (32, 16)})(models)


def float8_alone(models: Path) -> str:
    """Write two models; `b` has a weight in float8 without its scale."""
    two()(models)
    file = models / "b" / "model.safetensors"
    tensors = load_file(file)
    codes = np.full(SHAPES[UP], 0x38, np.uint8)  # 1.0 everywhere
    specs = {
        name: TensorSpec(
            dtype="float8_e4m3fn" if name == UP else "float32",
            shape=list(values.shape),
            data_ptr=(codes if name == UP else values).ctypes.data,
            data_len=(codes if name == UP else values).nbytes,
        )
        for name, values in tensors.items()
    }
    serialize_file(specs, file, metadata={"format": "pt"})
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    config = {**CONFIG, "quantization_config": quantised}
    (models / "b" / "config.json").write_text(json.dumps(config))
    return BOTH


def changed(change: Callable[[np.ndarray], np.ndarray], recipe: str) -> Build:
    """Return a function that writes `a`, and `b` with the changed numbers of `a`."""

    def build(models: Path) -> str:
        write(models / "a")
        tensors = load_file(models / "a" / "model.safetensors")
        write(models / "b", {}, **{name: change(t) for name, t in tensors.items()})
        return recipe

    return build


def far(values: np.ndarray) -> np.ndarray:
    return (values + 1e4 * np.sign(values)).astype(np.float32)


def with_nan(values: np.ndarray) -> np.ndarray:
    found = values.copy()
    found.flat[0] = np.nan
    return found


def adapter_of(factor: float, recipe: str) -> Build:
    """Return a function that writes an adapter of one matrix; with the factor 0 it is untrained."""

    def build(models: Path) -> str:
        write(models / "a")
        write_adapter(models / "l", lora(UP.removesuffix(".weight"), 16, 8))
        file = models / "l" / "adapter_model.safetensors"
        tensors = load_file(file)
        save_file({n: t * factor if "lora_B" in n else t for n, t in tensors.items()}, file)
        return recipe

    return build


Defect = tuple[Build, tuple[str, ...]]
"""What makes the models and returns the recipe, and words of what is told."""

REFUSED: dict[str, Defect] = {
    "the layer that predicts further tokens is missing": (
        two({**SHAPES, **MTP}, SHAPES, OF_MTP),
        ("10 tensors are missing from b", "model.layers.2.eh_proj.weight"),
    ),
    "a vision tower is missing": (
        two({**TEXT, **VISION}, TEXT, LLAVA),
        ("3 tensors are missing from b", "vision_tower.layers.{0-2}.fc.weight"),
    ),
    "a head is missing, which is not tied": (
        two(SHAPES, without(SHAPES, HEAD)),
        ("A tensor is missing from b", "lm_head.weight, as in a"),
    ),
    "a norm has another name": (
        two(SHAPES, {**without(SHAPES, NORM), "model.final_norm.weight": (8,)}),
        ("A tensor is missing from b", "b has 1 that a lacks: model.final_norm.weight"),
    ),
    "a layer is missing": (
        two(SHAPES, {n: s for n, s in SHAPES.items() if ".layers.1." not in n}),
        ("9 tensors are missing from b", "model.layers.1.mlp.down_proj.weight"),
    ),
    "matrices of an expert are missing": (
        two(EXPERTS, without(EXPERTS, "experts.2.w2.weight"), OF_EXPERTS),
        ("2 tensors are missing from b", "model.layers.{0-1}.block_sparse_moe.experts.2.w2.weight"),
    ),
    "an adapter is of a wider model": (
        adapter(lora("model.layers.0.mlp.up_proj", 16, 12)),
        ("The adapter does not fit the model", "A [1, 12] and B [16, 1]"),
    ),
    "an adapter is of a deeper model": (
        adapter(lora("model.layers.7.mlp.up_proj", 16, 8)),
        ("The adapter changes a module that the model lacks", "model.layers.7.mlp.up_proj"),
    ),
    "an adapter matches nothing": (
        adapter(lora("transformer.h.0.attn.c_attn", 8, 8)),
        ("The adapter changes a module that the model lacks", "transformer.h.0.attn.c_attn"),
    ),
    "a file is cut off": (cut_off, ("The safetensors file is damaged", "b/model.safetensors")),
    "a matrix is that of a wider model": (
        other_shard,
        ("Shapes do not match", UP, "[32, 16] in b"),
    ),
    "scales of float8 weights are missing": (
        float8_alone,
        (f"The scales of a float8 weight are missing: {UP}", "(fp8)"),
    ),
    "half of an adapter is missing": (
        adapter({"model.layers.0.mlp.up_proj.lora_A.weight": (1, 8)}),
        ("The adapter lacks one of the two matrices of a module", "model.layers.0.mlp.up_proj"),
    ),
}
"""Refused, whatever is asked for."""

ACCOUNTED: dict[str, Defect] = {
    "a vision tower that the reference lacks": (
        two(SHAPES, {**TEXT, **VISION}, CONFIG, LLAVA),
        (
            "21 of 24 tensors of b are used; not used: 3 for which the architecture of the output "
            "has no place (vision_tower.layers.{0-2}.fc.weight)",
        ),
    ),
    "a head of values": (
        two(SHAPES, {**SHAPES, "v_head.summary.weight": (1, 8)}),
        ("21 of 22 tensors of b are used", "no place (v_head.summary.weight)"),
    ),
    "a layer more than the reference has": (
        two(SHAPES, {**SHAPES, **LONGER}),
        ("21 of 30 tensors of b are used", "9 for which", "model.layers.2.input_layernorm"),
    ),
    "a layer that no slice takes": (
        two(recipe=SLICES),
        (
            "10 of 21 tensors of a are used",
            "2 that the output has from another model (lm_head.weight, model.norm.weight)",
            "9 of layers or experts that are not chosen (model.layers.1.input_layernorm.weight",
        ),
    ),
    "a base that the method does not read": (
        two(recipe=OF_BASE),
        ("0 of 21 tensors of a are used", "21 of a base that the method does not read"),
    ),
}
"""Told, and refused with --strict."""

HARMLESS: dict[str, Defect] = {
    "experts are packed in one layer": (
        two(EXPERTS, half_packed(), OF_EXPERTS),
        ("every tensor is used: 35 of a, 28 of b",),
    ),
    "the index says the wrong file": (
        swapped_shards,
        ("every tensor is used: 21 of a, 21 of b",),
    ),
}
"""Read all the same, so that nothing is lost."""


WORRYING: dict[str, Defect] = {
    "a model is its own base": (
        changed(lambda values: values, ADDED + "dtype: float32\n"),
        ("b contributed nothing",),
    ),
    "a change of 1e-4 is lost in bfloat16": (
        changed(lambda values: values * np.float32(1.0001), ADDED + "out_dtype: bfloat16\n"),
        ("of the elements that were to change did not", "smaller than BF16 can hold"),
    ),
    "differences that are rescaled overflow float16": (
        changed(far, DARE),
        ("numbers are too large for F16",),
    ),
    "numbers of a model are NaN": (
        changed(with_nan, BOTH),
        ("21 NaN numbers are in 21 tensors", "not finite in b either"),
    ),
    "an adapter was never trained": (
        adapter_of(0.0, "merge_method: passthrough\nmodels: [{model: a+l}]\n"),
        ("a+l contributed nothing",),
    ),
}
"""Told at the end of the merge, from its numbers, with 75 if --strict is given."""
