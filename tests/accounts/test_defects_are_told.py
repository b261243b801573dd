"""What is wrong with a model, or with how a recipe takes it, is told before a merge: by a problem,
or by the accounts, which --strict refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from accounted import (
    CONFIG,
    OF_EXPERTS,
    SHAPES,
    half_packed,
    mixture_of,
    planned,
    write,
    write_adapter,
)

from resumerge.documents.accounts import describe_accounts
from resumerge.engine.opening.plan_rows import account_rows
from resumerge.errors import InputError
from resumerge.ui.text.accounts import account_lines

BOTH = "merge_method: linear\nparameters: {weight: 0.5}\nmodels: [{model: a}, {model: b}]\n"
HEAD, NORM = "lm_head.weight", "model.norm.weight"
MTP = {f"model.layers.2.{rest}": shape for rest, shape in {"eh_proj.weight": (8, 16)}.items()} | {
    name.replace("layers.0", "layers.2"): shape
    for name, shape in SHAPES.items()
    if ".layers.0." in name
}
OF_MTP = {**CONFIG, "model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
LLAVA = {
    "model_type": "llava",
    "text_config": {**CONFIG, "vocab_size": 48},
    "vision_config": {"num_hidden_layers": 3},
}
TEXT = {f"language_model.{name}": shape for name, shape in SHAPES.items()}
VISION = {f"vision_tower.layers.{layer}.fc.weight": (4, 4) for layer in range(3)}
Tensors = Mapping[str, tuple[int, ...]]


def two(
    first: Tensors = SHAPES,
    second: Tensors = SHAPES,
    config: Mapping[str, Any] = CONFIG,
    other: Mapping[str, Any] | None = None,
    recipe: str = BOTH,
) -> Callable[[Path], str]:
    """Models a and b with these tensors and configs, and a recipe for them."""

    def build(models: Path) -> str:
        write(models / "a", first, config)
        write(models / "b", second, other or config)
        return recipe

    return build


def without(shapes: Tensors, *ends: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if not name.endswith(ends)}


def adapter(shapes: Tensors, **config: Any) -> Callable[[Path], str]:
    def build(models: Path) -> str:
        write(models / "a")
        write_adapter(models / "l", shapes, **config)
        return "merge_method: passthrough\nmodels: [{model: a+l}]\n"

    return build


def lora(at: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{at}.lora_A.weight": (1, columns), f"{at}.lora_B.weight": (rows, 1)}


def swapped_shards(models: Path) -> str:
    """The index of b says of each of its two files what the other one has."""
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

Defect = tuple[Callable[[Path], str], tuple[str, ...]]

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


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str, tmp_path: Path) -> None:
    build, words = REFUSED[name]
    recipe = build(tmp_path)
    with pytest.raises(InputError) as refused:
        planned(tmp_path, recipe)
    for said in words:
        assert said in str(refused.value)


@pytest.mark.parametrize("name", ACCOUNTED)
def test_it_is_told_and_refused_if_asked(name: str, tmp_path: Path) -> None:
    build, words = ACCOUNTED[name]
    recipe = build(tmp_path)
    for said in words:
        assert said in lines(tmp_path, recipe)
    with pytest.raises(InputError, match="would not be used"):
        planned(tmp_path, recipe, strict=True)


@pytest.mark.parametrize("name", HARMLESS)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    build, words = HARMLESS[name]
    recipe = build(tmp_path)
    for said in words:
        assert said in lines(tmp_path, recipe, strict=True)


def lines(models: Path, recipe: str, **options: Any) -> str:
    """What the last lines of a run say of the tensors."""
    plan = planned(models, recipe, **options)
    found = describe_accounts(account_rows(plan.accounts), every=False)
    return "\n".join(account_lines(found))
