"""Promise: `explain` says of every tensor of the output what it is computed with."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from merging import working_in
from rich.console import Console
from stage_recipes import write_adapter
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.errors import InputError

LAYERS = LLAMA["num_hidden_layers"]

GRADIENT = """
merge_method: ties
base_model: base
models:
  - model: math
    parameters:
      weight: [{filter: mlp, value: [0, 0.5, 1]}, {value: 0.6}]
      density: 0.5
  - {model: code, parameters: {weight: 0.4, density: 0.3}}
"""
SLICES = """
merge_method: passthrough
slices:
  - sources: [{model: math, layer_range: [0, 3]}]
  - sources:
      - model: code
        layer_range: [1, 4]
        parameters: {scale: [{filter: o_proj, value: 0.5}, {value: 1}]}
"""
STAGES = """
merge_method: linear
name: first
models:
  - {model: base, parameters: {weight: 1}}
  - {model: math, parameters: {weight: 3}}
---
merge_method: slerp
base_model: first
models: [{model: first}, {model: code}]
parameters: {t: 0.25}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


def explained(models: Path, recipe: str, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "recipe.yaml").write_text(recipe)
    with working_in(models):
        found = resumerge.explain(tmp_path / "recipe.yaml", state_dir=tmp_path / "state")
    json.dumps(found, allow_nan=False)
    return found


def group_with(stage: dict[str, Any], kind: str) -> dict[str, Any]:
    [found] = [group for group in stage["groups"] if kind in group["kinds"]]
    return found


def test_a_gradient_has_a_row_for_each_layer_and_the_rest_is_one(
    models: Path, tmp_path: Path
) -> None:
    [stage] = explained(models, GRADIENT, tmp_path)["stages"]
    assert (stage["name"], stage["method"]) == ("", "ties")
    assert sum(group["tensors"] for group in stage["groups"]) == 3 + 9 * LAYERS
    mlp = group_with(stage, "mlp.up_proj")
    assert mlp["kinds"] == ["mlp.down_proj", "mlp.gate_proj", "mlp.up_proj"]
    assert [row["layers"] for row in mlp["rows"]] == [[str(n)] for n in range(LAYERS)]
    weights = [row["settings"][0]["models"][0]["parameters"]["weight"] for row in mlp["rows"]]
    assert weights == pytest.approx([n / (LAYERS - 1) for n in range(LAYERS)])
    [row] = group_with(stage, "self_attn.q_proj")["rows"]
    [setting] = row["settings"]
    assert row["layers"] is None
    assert setting["parameters"]["normalize"] is True
    assert setting["models"] == [
        {"model": "math", "base": False, "parameters": {"weight": 0.6, "density": 0.5}},
        {"model": "code", "base": False, "parameters": {"weight": 0.4, "density": 0.3}},
        {"model": "base", "base": True, "parameters": {}},
    ]


def test_layers_that_slices_choose_are_ranges_and_copies_name_their_model(
    models: Path, tmp_path: Path
) -> None:
    [stage] = explained(models, SLICES, tmp_path)["stages"]
    copied = group_with(stage, "self_attn.q_proj")["rows"]
    assert [row["layers"] for row in copied] == [["0", "1", "2"], ["3", "4", "5"]]
    assert [row["settings"][0]["method"] for row in copied] == [None, None]
    assert [row["settings"][0]["models"][0]["model"] for row in copied] == ["math", "code"]
    scaled = group_with(stage, "self_attn.o_proj")["rows"]
    assert [row["settings"][0]["method"] for row in scaled] == [None, "passthrough"]
    assert scaled[1]["settings"][0]["models"][0]["parameters"] == {"scale": 0.5}


@pytest.mark.parametrize("dtype", ["", "dtype: float32\n"])
def test_what_an_adapter_changes_is_no_copy(dtype: str, models: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    recipe = f"merge_method: passthrough\n{dtype}models: [{{model: base+{adapter}}}]\n"
    [stage] = explained(models, recipe, tmp_path)["stages"]
    changed = {
        (kind, *row["layers"]): row["settings"]
        for group in stage["groups"]
        for kind in group["kinds"]
        for row in group["rows"]
        if row["settings"][0]["method"] == "adapter"
    }
    model = {"model": f"base+{adapter}", "base": False, "parameters": {}}
    setting = {"method": "adapter", "parameters": {}, "models": [model]}
    assert changed == {
        ("mlp.up_proj", "1"): [setting],
        ("self_attn.q_proj", "3"): [setting],
    }


def test_a_stage_is_explained_by_itself(models: Path, tmp_path: Path) -> None:
    first, last = explained(models, STAGES, tmp_path)["stages"]
    assert (first["name"], first["models"]) == ("first", ["base", "math"])
    assert (last["name"], last["models"]) == ("", ["first", "code"])
    [row] = group_with(last, "lm_head")["rows"]
    [setting] = row["settings"]
    assert setting["method"] == "slerp" and setting["parameters"]["t"] == 0.25
    assert [model["model"] for model in setting["models"]] == ["first", "code"]


def test_a_result_that_is_copied_names_its_stage(models: Path, tmp_path: Path) -> None:
    copy = STAGES.partition("---")[0] + "---\nmerge_method: passthrough\nmodels: [{model: first}]\n"
    _, last = explained(models, copy, tmp_path)["stages"]
    [group] = last["groups"]
    assert group["rows"][0]["settings"] == [
        {
            "method": None,
            "parameters": {},
            "models": [{"model": "first", "base": False, "parameters": {}}],
        }
    ]


@pytest.mark.parametrize("recipe", [GRADIENT, SLICES, STAGES])
def test_terminal_and_page_show_every_value(recipe: str, models: Path, tmp_path: Path) -> None:
    document = explained(models, recipe, tmp_path)
    console = Console(width=120, record=True, file=StringIO())
    console.print(document)
    text, page = console.export_text(), document._repr_html_()  # type: ignore[attr-defined]
    values = {
        (model["model"], f"{value:.4g}")
        for stage in document["stages"]
        for group in stage["groups"]
        for row in group["rows"]
        for setting in row["settings"]
        for model in setting["models"]
        for value in model["parameters"].values()
    }
    for model, value in values:
        assert re.search(rf"\b{model}\b", text) and re.search(rf"\b{model}\b", page)
        assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.])", text), value
        assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.])", page), value


def test_what_cannot_be_planned_is_refused(models: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="number"):
        explained(models, GRADIENT.replace("density: 0.5", "density: much"), tmp_path)
