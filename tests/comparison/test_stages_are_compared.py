"""Promise: a stage of a recipe is compared as the model in files that it would be."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared import compare
from merging import merge, working_in
from safetensors.numpy import save_file
from test_a_comparison_is_killed_and_goes_on import KILLED, command, computed, journal_of
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.comparison import run as runs
from resumerge.comparison import tensor as pieces
from resumerge.comparison.journal import Journal
from resumerge.errors import InputError
from resumerge.tensors import Merged

__all__ = ["computed"]

TIES = (
    "merge_method: ties\nbase_model: base\nmodels:\n"
    "  - {model: math, parameters: {weight: 0.5, density: 0.5}}\n"
    "  - {model: code, parameters: {weight: 0.5, density: 0.5}}\n"
)
STAGES = {
    "linear": "merge_method: linear\nmodels:\n  - {model: math, parameters: {weight: 0.5}}\n"
    "  - {model: base, parameters: {weight: 0.5}}\n",
    "ties": TIES,
    "bfloat16": TIES + "out_dtype: bfloat16\n",
    "dare": "merge_method: dare_linear\nbase_model: base\nmodels:\n"
    "  - {model: math, parameters: {weight: 1.0, density: 0.5}}\n",
    "layers": "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: math, layer_range: [0, 3]}]\n"
    "  - sources: [{model: code, layer_range: [1, 4]}]\n",
}
RESULT = (
    "---\nmerge_method: linear\nmodels: [{model: first}, {model: base}]\nparameters: {weight: 1}\n"
)
WHOLE = "merge_method: iso_c\nbase_model: base\nmodels: [{model: math}, {model: code}]\n"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path, LLAMA)


def recipe(place: Path, stage: str, result: str = RESULT) -> Path:
    file = place / "recipe.yaml"
    file.write_text(f"name: first\n{stage}{result}")
    return file


def compared(place: Path, *names: str, recipe: Path, **options: Any) -> dict[str, Any]:
    with working_in(place):
        return compare(place, *names, recipe=recipe, **options)


def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces end inside blocks of a merge."""
    for name, value in (("AT_ONCE", 100), ("PIECE_ELEMENTS", 300), ("MORE_ROWS", 4)):
        monkeypatch.setattr(pieces, name, value)


def numbers(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pairs without their sentences, which have the models' names."""
    return [{**found, "findings": None} for found in document["pairs"]]


@pytest.mark.parametrize("kind", STAGES)
def test_a_stage_is_the_merged_model(
    kind: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(models, STAGES[kind], models / "twin")
    in_small_pieces(monkeypatch)
    file = recipe(models, STAGES[kind])
    found = compared(models, "first", "twin", recipe=file)
    [same] = found["pairs"]
    assert same["relation"] == "copy"
    assert same["total"]["relations"] == {"equal": same["total"]["tensors"]}
    assert not (same["only_first"] or same["only_second"] or same["not_comparable"])
    stage, twin = found["models"]
    assert stage | {"model": "twin", "kind": "local"} == twin
    assert stage["kind"] == "stage" and found["config"]["same"]
    of_stage = compared(models, "code", "first", recipe=file, base="base")
    of_twin = compare(models, *(models / name for name in ("code", "twin")), base=models / "base")
    assert numbers(of_stage) == numbers(of_twin)
    assert of_stage["task_vectors"]["cosine"] == of_twin["task_vectors"]["cosine"]
    assert not [*(models / "state").rglob("*.safetensors")]


@pytest.mark.needs("torch")
def test_a_stage_of_a_stage_with_an_adapter_beside_the_base(models: Path) -> None:
    stages = f"{TIES}---\nname: second\n" + STAGES["linear"].replace("math", "first")
    file = recipe(models, stages, RESULT.replace("first", "second"))
    (models / "lora").mkdir()
    draw, module = np.random.default_rng(0), "base_model.model.model.layers.1.mlp.up_proj"
    width, inner = LLAMA["hidden_size"], LLAMA["intermediate_size"]
    shapes = {f"{module}.lora_A.weight": (2, width), f"{module}.lora_B.weight": (inner, 2)}
    factors = {name: draw.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    save_file(factors, models / "lora/adapter_model.safetensors")
    config = '{"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["up_proj"]}'
    (models / "lora/adapter_config.json").write_text(config)
    found = compared(models, "second", "second+lora", recipe=file, base="first")
    assert [model["kind"] for model in found["models"]] == ["stage"] * 3
    [adapted] = [p for p in found["pairs"] if (p["first"], p["second"]) == (1, 2)]
    [changed] = [t for t in adapted["tensors"] if t["relation"] != "equal"]
    assert changed["name"] == "model.layers.1.mlp.up_proj.weight"
    assert (changed["relation"], changed["details"]["rank"]) == ("low rank", 2)


@pytest.mark.needs("torch")
def test_each_block_of_a_whole_tensor_is_computed_once(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[tuple[str, int]] = []
    compute = Merged.compute

    def noted(self: Merged, evaluation: Any, inputs: Any, run: Any, out: Any) -> None:
        first = range(run.first, run.first + -(-run.length // run.size))
        blocks.extend((self.name, number) for number in first)
        compute(self, evaluation, inputs, run, out)

    merge(models, WHOLE, models / "twin")
    monkeypatch.setattr(Merged, "compute", noted)
    in_small_pieces(monkeypatch)
    [found] = compared(models, "first", "twin", recipe=recipe(models, WHOLE))["pairs"]
    assert found["relation"] == "copy"
    assert len(blocks) == len(set(blocks)) > 30


def test_it_is_killed_and_goes_on(models: Path, computed: list[str]) -> None:
    file = recipe(models, TIES)
    calm = compared(models, "base", "first", recipe=file, threads=1)
    computed.clear()
    before = KILLED.format(rows=20, signal="SIGKILL")
    killed = command(models, "base", "first", "--recipe", file, before=before)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert compared(models, "base", "first", recipe=file, threads=1) == calm
    assert len(computed) == 39 - 20


def test_another_recipe_or_seed_is_another_comparison(
    models: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, add = recipe(models, TIES), Journal.add

    def stopped(self: Journal, name: str, row: Any) -> None:
        add(self, name, row)
        raise ZeroDivisionError

    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(Journal, "add", stopped)
        compared(models, "base", "first", recipe=file)
    assert len(journal_of(models).read_text().splitlines()) == 1
    computed.clear()
    recipe(models, TIES.replace("weight: 0.5", "weight: 0.6"))
    compared(models, "base", "first", recipe=file)
    compared(models, "base", "first", recipe=recipe(models, TIES), seed=1)
    assert len(computed) == 2 * 39
    compared(models, "base", "first", recipe=file)
    assert len(computed) == 3 * 39 - 1


def test_python_takes_a_recipe_of_mappings(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)
    entries = [{"model": name, "parameters": {"weight": 0.5}} for name in ("math", "code")]
    first = {"name": "first", "merge_method": "linear", "models": entries}
    last = {"merge_method": "linear", "models": [{"model": "first"}], "parameters": {"weight": 1}}
    found = resumerge.compare("math", "first", recipe=[first, last], state_dir=models / "state")
    assert found["pairs"][0]["total"]["tensors"] == 39


def refusal(place: Path, *names: str, recipe: Path, **options: Any) -> str:
    with pytest.raises(InputError) as refused:
        compared(place, *names, recipe=recipe, **options)
    assert not (place / "state").exists() or not [*(place / "state").rglob("*.jsonl")]
    return str(refused.value)


def test_what_is_no_stage_of_the_recipe_is_refused(models: Path) -> None:
    file = recipe(models, TIES)
    found = refusal(models, "base", "math", recipe=file)
    assert "No model is a stage of the recipe" in found and "a stage: first" in found
    found = refusal(models, "base", "frist", recipe=file)
    assert "No stage of the recipe has the name 'frist'" in found and "write 'first'" in found
    (models / "alone.yaml").write_text(TIES)
    found = refusal(models, "base", "first", recipe=models / "alone.yaml")
    assert "a recipe of several documents" in found


def test_a_stage_that_cannot_be_planned_is_refused_at_its_line(models: Path) -> None:
    found = refusal(models, "base", "first", recipe=recipe(models, TIES.replace("code", "none")))
    assert "recipe.yaml" in found and "line 6" in found


@pytest.mark.needs("torch")
def test_a_stage_that_needs_steps_is_refused(tmp_path: Path) -> None:
    from stage_recipes import write_models

    write_models(tmp_path)
    stage = (
        "base_model: base\ngate_mode: cheap_embed\nexperts:\n"
        "  - {source_model: math, positive_prompts: [w1]}\n"
        "  - {source_model: code, positive_prompts: [w2]}\n"
    )
    found = refusal(tmp_path, "base", "first", recipe=recipe(tmp_path, stage))
    assert "it needs gates from the embedding" in found and "--keep" in found


def test_a_stage_that_does_not_fit_into_memory_is_refused(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LARGEST_BUFFERS", 1)
    monkeypatch.setattr(runs, "memory_budget", lambda asked: 1000)
    found = refusal(models, "base", "first", recipe=recipe(models, TIES))
    assert "The memory is too small to compute a tensor of a stage" in found
