"""Promise: each output of a sweep has, file by file, the bytes that its recipe alone gives."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from merging import merge, working_in
from stage_recipes import write_models

import resumerge
from resumerge.documents.explanation import explain
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter
from resumerge.errors import InputError
from resumerge.kernels import BlockRun
from resumerge.methods.spherical.slerp import Slerp
from resumerge.methods.task_vectors.ties import Ties
from resumerge.options import Options
from resumerge.recipe import parse_recipe
from resumerge.tensors import Merged

TIES = """\
merge_method: ties
base_model: ./base
models:
  - {model: ./math, parameters: {weight: 0.7, density: 0.5}}
  - {model: ./code, parameters: {weight: 0.4, density: 0.3}}
dtype: bfloat16
"""
SLERP = """\
merge_method: slerp
base_model: ./math
models: [{model: ./math}, {model: ./code}]
parameters: {t: 0.5}
dtype: float32
"""
STAGES = """\
name: first
merge_method: linear
models: [{model: ./base, parameters: {weight: 1}}, {model: ./code, parameters: {weight: 2}}]
dtype: float32
---
merge_method: linear
models: [{model: first, parameters: {weight: 1}}, {model: ./math, parameters: {weight: 1}}]
dtype: float32
tokenizer_source: union
"""
SWEEPS = {
    "lists": SLERP + "sweep: {t: [0, 0.3, [0, 0.5, 1], [{filter: mlp, value: 0.9}, {value: 0.1}]]}",
    "a grid": TIES + "sweep: {lambda: [0.5, 1], 'models[0].parameters.density': [0.5, 1, 0.01]}",
    "methods and types": TIES
    + "sweep: {merge_method: [ties, dare_ties, task_arithmetic, model_stock], "
    "out_dtype: [float32, float16]}",
    "variants": TIES
    + "sweep: {variants: {plain: {}, none: {lambda: 0}, more: {normalize: false}}}",
    "random masks": TIES.replace("ties", "della")
    + "sweep: {lambda: [0.5, 1], normalize: [true, false]}",
    "masks of two sides": TIES.replace("ties", "breadcrumbs")
    + "sweep: {'models[1].parameters.weight': [1, 2], gamma: [0.01, 0.1]}",
    "other models": SLERP
    + "sweep: {'models[1].model': [./base, ./code], t: [0.2, 0.5], dtype: [bfloat16]}",
    "of stages": STAGES + "sweep: {'models[0].parameters.weight': [1, 2, 3]}",
}
SMALL = {"shard_size": 20_000, "seed": 7}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks so small that tensors have several, and statistics of their own."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 256)


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("name", SWEEPS)
def test_each_variant_is_its_single_run(name: str, models: Path, tmp_path: Path) -> None:
    """Card and index are equal, too: a card describes what its own recipe reads of a model."""
    out = merge(models, SWEEPS[name], tmp_path / "out", **SMALL)
    assert (out / "mergekit_config.yml").read_text() == SWEEPS[name]
    variants = [path for path in out.iterdir() if path.is_dir()]
    assert len(variants) > 2
    (tmp_path / "alone").mkdir()
    for variant in variants:
        recipe = (variant / "mergekit_config.yml").read_text()
        alone = merge(models, recipe, tmp_path / "alone" / variant.name, **SMALL)
        assert files_of(variant) == files_of(alone), variant.name


def test_what_variants_share_is_computed_once(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each density needs one selection, and all values of t one cosine, in any order."""
    scanned: Counter[str] = Counter()
    for method in (Ties, Slerp):
        compute = method.statistics

        def counted(self: Any, tensor: Any, scan: Any, compute: Any = compute) -> Any:
            scanned[tensor.name] += tensor.numel > 256
            return compute(self, tensor, scan)

        monkeypatch.setattr(method, "statistics", counted)
    places = {
        "lambda": [0.5, 1, 2],
        "models[0].parameters.density": [0.5, 0.3],
        "normalize": [0, 1],
    }
    merge(models, TIES + f"sweep: {places}", tmp_path / "ties")
    assert set(+scanned) and set((+scanned).values()) == {2}
    scanned.clear()
    merge(models, SLERP + "sweep: {t: [0.1, 0.2, 0.3, 0.4]}", tmp_path / "slerp")
    assert set(+scanned) and set((+scanned).values()) == {1}


def test_what_variants_read_is_read_once(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep reads a block as often as one variant alone, in any order of the values."""
    read: Counter[tuple[str, int]] = Counter()
    inputs = Merged.inputs

    def counted(self: Merged, evaluation: Any, run: BlockRun) -> Any:
        read.update((self.name, block) for block in range(run.first, run.first + len(run)))
        return inputs(self, evaluation, run)

    monkeypatch.setattr(Merged, "inputs", counted)
    linear = TIES.replace("ties", "linear").replace("base_model: ./base\n", "")
    for name, recipe, places in (
        ("linear", linear, {"models[0].parameters.weight": [1, 2, 3, 4], "normalize": [0, 1]}),
        ("slerp", SLERP, {"t": [0.1, [0, 0.5, 1], 0.3]}),
    ):
        merge(models, recipe, tmp_path / name)
        alone = read.copy()
        read.clear()
        merge(models, recipe + f"sweep: {json.dumps(places)}", tmp_path / f"{name} swept")
        of_several_blocks = {key[0] for key in alone if key[1] > 0}
        assert of_several_blocks
        for key, count in alone.items():
            if key[0] in of_several_blocks or name == "linear":
                assert read[key] == count, key
        read.clear()


def test_what_was_damaged_is_found_and_made_again(models: Path, tmp_path: Path) -> None:
    out = merge(models, SWEEPS["lists"], tmp_path / "out", **SMALL)
    state, before = out.with_name("out.state"), files_of(out)
    with working_in(models):
        assert resumerge.verify(out, state_dir=state).intact
        shard = sorted(out.rglob("*.safetensors"))[-1]
        good = shard.read_bytes()
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        (out / "t-0" / "config.json").unlink()
        report = resumerge.verify(out, state_dir=state)
        assert not report.intact
        resumerge.resume(out, state_dir=state)
    assert files_of(out) == before


def test_what_was_read_is_computed_again_from_the_models(models: Path, tmp_path: Path) -> None:
    out = merge(models, SWEEPS["a grid"], tmp_path / "out", **SMALL)
    with working_in(models):
        report = resumerge.verify(out, sources=True, state_dir=out.with_name("out.state"))
    assert report.intact


def test_another_sweep_is_another_run(models: Path, tmp_path: Path) -> None:
    out = merge(models, SLERP + "sweep: {t: [0.1, 0.2]}", tmp_path / "out")
    for other in ("[0.1, 0.3]", "[0.2, 0.1]", "[0.1]"):
        with pytest.raises(InputError, match="recipe has changed"):
            merge(models, SLERP + f"sweep: {{t: {other}}}", tmp_path / "out")
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["t-0.1", "t-0.2"]


def test_the_plan_says_how_many_models_there_are(models: Path, tmp_path: Path) -> None:
    config = tmp_path / "recipe.yaml"
    config.write_text(SWEEPS["of stages"])
    alone = tmp_path / "alone.yaml"
    alone.write_text(STAGES)
    with working_in(models):
        found, single = resumerge.plan(config), resumerge.plan(alone)
    names = ["weight-1", "weight-2", "weight-3"]
    assert [output["name"] for output in found["outputs"]] == names
    assert {output["bytes"] for output in found["outputs"]} == {single["output_bytes"]}
    assert found["output_bytes"] == 3 * single["output_bytes"] and single["outputs"] == []
    needed = [model["bytes_needed"] for model in found["sources"]]
    assert needed == [model["bytes_needed"] for model in single["sources"]], "read once"


def test_each_variant_is_explained(models: Path, tmp_path: Path) -> None:
    config = tmp_path / "recipe.yaml"
    config.write_text(SWEEPS["of stages"])
    with working_in(models):
        document = explain(config, Options(state_dir=tmp_path / "state"), Reporter())
    assert [stage["name"] for stage in document["stages"]] == [
        "first", "weight-1", "weight-2", "weight-3"
    ]  # fmt: skip
    weights = [
        stage["groups"][0]["rows"][0]["settings"][0]["models"][0]["parameters"]["weight"]
        for stage in document["stages"][1:]
    ]
    assert weights == [1, 2, 3]


FAULTS = {
    "a value that no method reads": (
        SLERP + "sweep: {t: [0.1, 0.2], density: [0.5, 1]}",
        "Two variants of the sweep are the same model",
    ),
    "a value that is that of the other": (
        TIES + "sweep: {variants: {a: {}, b: {'models[0].parameters.weight': 0.7}}}",
        "Two variants of the sweep are the same model",
    ),
    "a value out of range": (TIES + "sweep: {density: [0.5, 1]}", "same model"),
    "a value that cannot be": (
        TIES + "sweep: {'models[0].parameters.density': [0.5, -1]}",
        "has an invalid value",
    ),
    "a method that does not exist": (TIES + "sweep: {merge_method: [ties, tiez]}", "'tiez'"),
    "types of GGUF": (SLERP + "sweep: {out_dtype: [float16, q8_0]}", "q8_0 is a type of GGUF"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_right_is_refused(name: str, models: Path, tmp_path: Path) -> None:
    recipe, words = FAULTS[name]
    with pytest.raises(InputError, match=words) as caught:
        merge(models, recipe, tmp_path / "out")
    assert all(problem.line for problem in caught.value.problems)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["out.safetensors", "out.gguf"])
def test_one_file_is_no_place_for_several_models(models: Path, tmp_path: Path, out: str) -> None:
    with pytest.raises(InputError, match="which one file has no place for"):
        merge(models, SWEEPS["lists"], tmp_path / out)
    assert not (tmp_path / out).exists()


def test_a_cluster_computes_no_sweep(models: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="computed by one machine"):
        merge(models, SWEEPS["lists"], tmp_path / "out", ray="local")
    assert not (tmp_path / "out").exists()


def test_stages_are_kept_beside_the_variants(models: Path, tmp_path: Path) -> None:
    out = merge(models, SWEEPS["of stages"], tmp_path / "out", keep=["first"], **SMALL)
    folders = sorted(path.parent.relative_to(out) for path in out.rglob("config.json"))
    assert [*map(str, folders)] == ["stages/first", "weight-1", "weight-2", "weight-3"]
    alone = merge(models, STAGES, tmp_path / "alone", keep=["first"], **SMALL)
    assert files_of(out / "stages").keys() == files_of(alone / "stages").keys()
    for name, data in files_of(out / "stages").items():
        if not name.endswith(".md"):
            assert data == files_of(alone / "stages")[name] or name.endswith(".yml"), name


def test_notes_of_one_variant_name_it(models: Path, tmp_path: Path) -> None:
    recipe = TIES + "sweep: {variants: {a: {}, b: {'models[0].parameters.density': 2}}}"
    with working_in(models):
        notes = Session(Options(state_dir=tmp_path / "state")).plan(parse_recipe(recipe)).notes
    assert "2 models in one run: a, b" in notes
    assert [note for note in notes if "counts as 1" in note] == [
        "b: models[0].parameters.density is 2: it counts as 1, the largest value"
    ]
