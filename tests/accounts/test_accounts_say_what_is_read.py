"""The accounts of a tensor agree with the merge, as changes of one tensor at a time show."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from accounted import (
    CONFIG,
    OF_EXPERTS,
    computed,
    half_packed,
    header,
    mixture_of,
    planned,
    spoil,
    write,
    write_tokenizer,
)
from safetensors.numpy import save_file
from tiny_models import write_family

from resumerge.accounts import origins
from resumerge.methods import METHODS
from resumerge.tensor_uses import Use

RECIPES = {
    "linear": """
merge_method: linear
models:
  - {model: math, parameters: {weight: 0.75}}
  - {model: code, parameters: {weight: 0.25}}
""",
    "ties": """
merge_method: ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.5, density: 0.6}}
  - {model: code, parameters: {weight: 0.5, density: 0.6}}
""",
    "slices": """
merge_method: linear
slices:
  - sources:
      - {model: base, layer_range: [0, 1], parameters: {weight: 1}}
      - {model: math, layer_range: [1, 2], parameters: {weight: 1}}
  - sources: [{model: code, layer_range: [1, 2], parameters: {weight: 1}}]
  - sources: [{model: base, layer_range: [0, 1], parameters: {weight: 1}}]
""",
    "adapter": """
merge_method: linear
models:
  - {model: base+adapter, parameters: {weight: 0.5}}
  - {model: math, parameters: {weight: 0.5}}
""",
    "adapter alone": """
merge_method: passthrough
models: [{model: base+adapter}]
""",
    "mixture": """
base_model: base
gate_mode: random
experts: [{source_model: math}, {source_model: code}]
""",
    "experts": """
merge_method: linear
models:
  - {model: routed, parameters: {weight: 0.5}}
  - {model: tuned, parameters: {weight: 0.5}}
""",
    "an expert": """
merge_method: passthrough
models: [{model: routed}]
extract_expert: 1
""",
    "union": """
merge_method: linear
models:
  - {model: math, parameters: {weight: 0.5}}
  - {model: code, parameters: {weight: 0.5}}
tokenizer: {source: union}
""",
    "stages": """
name: first
merge_method: passthrough
slices:
  - sources: [{model: math, layer_range: [0, 2]}]
  - sources: [{model: code, layer_range: [1, 2]}]
---
merge_method: linear
slices:
  - sources:
      - {model: first+adapter, layer_range: [1, 2], parameters: {weight: 0.5}}
      - {model: base, layer_range: [1, 2], parameters: {weight: 0.5}}
  - sources:
      - {model: first, layer_range: [2, 3], parameters: {weight: 0.5}}
      - {model: base, layer_range: [0, 1], parameters: {weight: 0.5}}
""",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_family(tmp_path_factory.mktemp("models"), CONFIG)
    draw = np.random.default_rng(9)
    adapter = folder / "adapter"
    adapter.mkdir()
    tensors = {
        f"base_model.model.model.layers.{layer}.mlp.{name}.lora_{matrix}.weight": shape
        for layer in range(2)
        for name, rows, columns in (("up_proj", 16, 8), ("down_proj", 8, 16))
        for matrix, shape in (("A", (2, columns)), ("B", (rows, 2)))
    }
    values = {name: draw.standard_normal(shape, np.float32) for name, shape in tensors.items()}
    values["base_model.model.lm_head.weight"] = draw.standard_normal((48, 8), np.float32)
    save_file(values, adapter / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "modules_to_save": ["lm_head"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    for name, first in (("math", 0), ("code", 4)):
        write_tokenizer(folder / name, 48, first)
    for name in ("routed", "tuned"):
        write(folder / name, mixture_of(3), OF_EXPERTS)
    write(folder / "packed", half_packed(), OF_EXPERTS)
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_each_tensor_changes_the_outputs_that_are_made_of_it_and_no_other(
    name: str, models: Path
) -> None:
    plan = planned(models, RECIPES[name], materialize="never")
    made_of: dict[tuple[str, str], set[str]] = defaultdict(set)
    for origin in origins(plan.sources, plan.tensors()):
        assert not origin.generated or origin.name.endswith(".gate.weight"), origin.name
        for each in origin.tensors:
            made_of[each].add(origin.name)
    before = computed(plan)
    for model in plan.accounts.models:
        [file] = (models / model.model).glob("*.safetensors")
        unused = {name for names in model.unused.values() for name in names}
        assert sum(model.used.values()) + len(unused) == len(header(file))
        for tensor in header(file):
            original = spoil(file, [tensor])
            try:
                after = computed(plan)
            finally:
                file.write_bytes(original)
            changed = {key for key in before if before[key] != after[key]}
            assert changed == made_of[model.model, tensor], tensor
            assert (tensor in unused) == (not changed), tensor


USES = {
    RECIPES["adapter alone"]: {
        "base": {Use.COPIED: 16, Use.MERGED: 4},
        "adapter": {Use.COPIED: 1, Use.MERGED: 8},
    },
    RECIPES["union"]: {key: {Use.MERGED: 19, Use.VOCABULARY: 2} for key in ("math", "code")},
    RECIPES["experts"].replace("tuned", "packed"): {
        "routed": {Use.MERGED: 35},
        "packed": {Use.MERGED: 26, Use.EXPERTS: 2},
    },
    RECIPES["an expert"].replace("routed", "packed"): {"packed": {Use.COPIED: 18, Use.CUT: 2}},
}


@pytest.mark.parametrize("recipe", USES, ids=["adapter", "union", "experts", "an expert"])
def test_what_tensors_are_used_for(recipe: str, models: Path) -> None:
    found = planned(models, recipe).accounts.models
    assert {model.model: model.used for model in found} == USES[recipe]


@pytest.mark.parametrize("method", sorted(METHODS.built_in))
def test_every_method_reads_all_models(method: str, models: Path) -> None:
    known = METHODS[method]
    names = ["math", "code"][: known.most or 2] if known.most != 1 else ["math"]
    if known.most == known.fewest == 2 and known.base == "required":
        names = ["math"]
    base = "base_model: base\n" if known.base == "required" else ""
    values = {"t": 0.5, "weight": 0.5, "density": 0.5, "gamma": 0.01, "epsilon": 0.1}
    own = {p.name: values[p.name] for p in known.parameters if p.name in values and p.per_model}
    whole = {p.name: values[p.name] for p in known.parameters if p.name in values}
    whole = {key: value for key, value in whole.items() if key not in own}
    listed = "".join(
        f"  - {json.dumps({'model': name, **({'parameters': own} if own else {})})}\n"
        for name in names
    )
    recipe = f"merge_method: {method}\n{base}models:\n{listed}"
    recipe += f"parameters: {json.dumps(whole)}\n" if whole else ""
    plan = planned(models, recipe)
    assert {m.model for m in plan.accounts.models} == {*names, *(["base"] if base else [])}
    assert not any(model.unused for model in plan.accounts.models)


def test_one_folder_may_have_a_model_and_an_adapter(models: Path, tmp_path: Path) -> None:
    for folder in ("base", "adapter"):
        shutil.copytree(models / folder, tmp_path / "both", dirs_exist_ok=True)
    write(tmp_path / "other")
    text = "merge_method: linear\nparameters: {weight: 1}\n"
    text += "models: [{model: other+both}, {model: both}]\n"
    found = planned(tmp_path, text).accounts.models
    assert {model.model: sum(model.used.values()) for model in found} == {
        "other": 20,
        "both (adapter)": 9,
        "both": 21,
    }
