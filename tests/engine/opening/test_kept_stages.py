"""Promise: a kept stage has the bytes of the model that its document alone gives."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from merging import merge, shards_of, working_in
from stage_recipes import RECIPES, documents, merge_stages, write_models
from transformers import AutoModelForCausalLM

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.ledger import Ledger
from resumerge.options import Options
from resumerge.output_path import is_shard_name
from resumerge.planning.stage_results.kept import problems_of_kept, with_kept
from resumerge.planning.written.models import models_of
from resumerge.recipe import load_recipe, parse_recipe

BESIDE_THE_WEIGHTS = ("config.json", "tokenizer.json", "tokenizer_config.json")
SMALL = {"shard_size": 20_000}
OF_EACH_KIND = (
    *("five", "used twice", "ties of ties", "slerp of stages", "a stage as the base", "sce"),
    *("slices of slices", "a layer that is computed", "an output dtype", "a union in a stage"),
    *("a union of stages", "the tokenizer of a stage"),
)
"""Some of the recipes of stages; without kept stages all of them are compared."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


def stages_of(recipe: str) -> list[str]:
    return [document["name"] for document in documents(recipe)[:-1]]


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "in any order"])
def test_each_is_as_if_merged_alone(name: str, models: Path, tmp_path: Path, soak: bool) -> None:
    if name not in OF_EACH_KIND and not soak:
        pytest.skip("a recipe of each kind is enough for every day: all with --soak")
    recipe = RECIPES[name]
    kept = stages_of(recipe)
    ours = merge(models, recipe, tmp_path / "out", keep=kept, **SMALL)
    alone = merge_stages(models, recipe, tmp_path / "stages", **SMALL)
    for folder, own in ((alone, ours), *((alone.parent / n, ours / "stages" / n) for n in kept)):
        assert shards_of(own) == shards_of(folder)
        index = "model.safetensors.index.json"
        assert (own / index).read_text() == (folder / index).read_text()
        for file in BESIDE_THE_WEIGHTS:
            assert (own / file).read_text() == (folder / file).read_text(), file


@pytest.fixture(scope="module")
def two(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of a recipe of two documents, whose first stage is kept."""
    folder = tmp_path_factory.mktemp("two")
    return merge(models, RECIPES["linear of linear"], folder / "out", keep=["first"], **SMALL)


def test_transformers_opens_it(two: Path) -> None:
    for folder in (two, two / "stages" / "first"):
        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not any(info.values()), info
        assert model(torch.tensor([[1, 2]])).logits.isfinite().all()
    assert "first" in (two / "stages" / "first" / "README.md").read_text()


def test_a_stage_that_is_not_kept_takes_nothing_from_the_model(
    models: Path, tmp_path: Path
) -> None:
    config = tmp_path / "recipe.yaml"
    config.write_text(RECIPES["linear of two"])
    with working_in(models):
        plan = Session(Options(state_dir=tmp_path / "state", **SMALL)).plan(load_recipe(config))
    kept = with_kept(plan, ["second"])
    stage, model = models_of(kept)
    assert (stage.folder, stage.plan.units) == ("stages/second/", plan.stages[1].units)
    assert (model.folder, model.plan.units, model.plan.shards) == ("", plan.units, plan.shards)


def test_names_that_some_disks_take_for_one_are_refused(models: Path, tmp_path: Path) -> None:
    recipe = RECIPES["linear of two"].replace("second", "First")
    with pytest.raises(InputError, match="differ only in case"):
        merge(models, recipe, tmp_path / "out", keep=["first", "First"])
    assert not (tmp_path / "out").exists()


def test_others_are_not_written(models: Path, tmp_path: Path) -> None:
    recipe = RECIPES["linear of linear"]
    out = merge(models, recipe, tmp_path / "out")
    assert not (out / "stages").exists()


def test_the_run_keeps_what_it_began_with(models: Path, two: Path) -> None:
    state = two.with_name("out.state")
    with working_in(models):
        report = resumerge.verify(two, state_dir=state)
        assert report.intact
        shard = next((two / "stages" / "first").glob("*.safetensors"))
        good = shard.read_bytes()
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        assert not resumerge.verify(two, state_dir=state).intact
        resumerge.resume(two, state_dir=state)
        assert shard.read_bytes() == good
        (two / "stages" / "first" / "config.json").unlink()
        resumerge.resume(two, state_dir=state)
        assert json.loads((two / "stages" / "first" / "config.json").read_text())


def test_other_stages_are_another_run(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPES["linear of two"], tmp_path / "out", keep=["first"])
    with working_in(models):
        state = out.with_name("out.state")
        again = resumerge.run(out.with_name("out.yaml"), out, state_dir=state)
        assert again.already_done, "what is not given is as it was"
        with pytest.raises(InputError, match=r"An option[^\n]*(.|\n)*kept stages"):
            resumerge.run(out.with_name("out.yaml"), out, keep=["second"], state_dir=state)


@pytest.mark.parametrize(
    "keep, out, what",
    [
        (["nobody"], "out", "There is no stage 'nobody' to keep"),
        (["first", "nobody"], "out", "There is no stage 'nobody' to keep"),
        (["first"], "out.safetensors", "beside an output that is one file"),
    ],
)
def test_what_cannot_be_kept(
    models: Path, tmp_path: Path, keep: list[str], out: str, what: str
) -> None:
    with pytest.raises(InputError, match=what):
        merge(models, RECIPES["linear of linear"], tmp_path / out, keep=keep)
    assert not (tmp_path / out).exists()


def test_without_stages_to_keep_one_file_is_as_good_an_output_as_a_folder(models: Path) -> None:
    with working_in(models):
        plan = Session(Options()).plan(parse_recipe(RECIPES["linear of linear"]))
    assert list(problems_of_kept(plan, [], is_file=True)) == []
    assert list(problems_of_kept(plan, ["first", "first"], is_file=False)) == []
    assert len(list(problems_of_kept(plan, ["first"], is_file=True))) == 1


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "-v"])
def test_names_that_are_no_folder(models: Path, tmp_path: Path, name: str) -> None:
    recipe = json.dumps(name).join(RECIPES["linear of linear"].split("first"))
    with pytest.raises(InputError, match="cannot be kept"):
        merge(models, recipe, tmp_path / "out", keep=[name])
    assert not (tmp_path / "out").exists()


def test_a_ledger_names_no_other_folder() -> None:
    assert is_shard_name("stages/first/unet/model-00001-of-00002.safetensors")
    for name in ("stages/../model", "stages/.a/model", "other/first/a/model", "/stages/a/model"):
        assert not is_shard_name(f"{name}.safetensors"), name


def test_on_the_command_line_it_is_given_for_each_stage(models: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPES["linear of two"])
    words = ["run", str(tmp_path / "recipe.yaml"), str(tmp_path / "out")]
    options = ["--keep", "first", "--keep", "second", "--state-dir", str(tmp_path / "state")]
    command = [sys.executable, "-m", "resumerge", *words, *options]
    subprocess.run(command, cwd=models, check=True, capture_output=True)
    assert {path.name for path in (tmp_path / "out" / "stages").iterdir()} == {"first", "second"}


def test_all_stages_have_names_in_a_folder_of_the_users(models: Path, tmp_path: Path) -> None:
    there = tmp_path / "intermediate"
    recipe = RECIPES["linear of two"]
    out = merge(models, recipe, tmp_path / "out", intermediate_dir=there)
    kept = merge(models, recipe, tmp_path / "kept", keep=["first", "second"])
    for name in ("first", "second"):
        assert shards_of(there / name) == shards_of(kept / "stages" / name)
        assert (there / name).resolve() == out / "stages" / name


@pytest.mark.parametrize("made", ["a folder", "a link to"])
def test_what_has_the_name_of_a_stage_stays(models: Path, tmp_path: Path, made: str) -> None:
    there = tmp_path / "intermediate"
    (there / "first").mkdir(parents=True)
    (there / "first/config.json").write_text("{}")
    if made != "a folder":
        (there / "first").rename(tmp_path / "mine")
        (there / "first").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match=made) as refused:
        merge(models, RECIPES["linear of two"], tmp_path / "out", intermediate_dir=there)
    assert len(refused.value.problems) == 1
    assert not (tmp_path / "out").exists()
    assert (there / "first/config.json").read_text() == "{}"


def test_a_folder_that_cannot_be_is_refused(models: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for there in (tmp_path / "file" / "inside", models / "math"):
        with pytest.raises(InputError, match="folder of the stages"):
            merge(models, RECIPES["linear of two"], tmp_path / "out", intermediate_dir=there)
    with pytest.raises(InputError, match="one file"):
        merge(models, RECIPES["linear of two"], tmp_path / "o.safetensors", intermediate_dir=there)


def test_a_run_that_resume_starts_over_has_what_it_was_planned_with(
    models: Path, tmp_path: Path
) -> None:
    """The command `resume` has no options for the values that decide the plan."""
    there, state = tmp_path / "intermediate", tmp_path / "state"
    more = {"intermediate_dir": there, "state_dir": state, "seed": 7, "shard_size": 5000}
    out = merge(models, RECIPES["linear of two"], tmp_path / "out", **more)
    before = shards_of(out), shards_of(out / "stages/first")
    next(out.glob("*.safetensors")).unlink()
    with working_in(models):
        resumerge.resume(str(out), state_dir=state, restart=True)
    assert (shards_of(out), shards_of(there / "first")) == before
    ledger = next(state.glob("*/ledger.db"))
    with closing(Ledger(ledger)) as opened:
        options = json.loads(opened.run()["options"])
    assert (options["seed"], options["shard_size"]) == (7, 5000)
    assert options["intermediate_dir"] == str(there) and options["keep"]


def test_a_run_that_was_begun_with_a_folder_goes_on_with_it(models: Path, tmp_path: Path) -> None:
    """The links to the stages lead into the same output after a restart, too."""
    there, state = tmp_path / "intermediate", tmp_path / "state"
    more = {"intermediate_dir": there, "state_dir": state}
    out = merge(models, RECIPES["linear of two"], tmp_path / "out", **more)
    before = shards_of(out)
    merge(models, RECIPES["linear of two"], tmp_path / "out", restart=True, **more)
    assert shards_of(out) == before
    assert shards_of(there / "first") == shards_of(out / "stages/first")
