"""The model of an extraction may be the result of another document: the adapter is the same."""

from pathlib import Path

import pytest
from adapter_runs import check_a_kill, run
from merging import shards_of, working_in
from stage_recipes import write_adapter
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.errors import InputError
from resumerge.recipe import parse_recipe
from resumerge.tensors import Factors

MERGES = {
    "linear": "merge_method: linear\nmodels:\n"
    "  - {model: math, parameters: {weight: 0.5}}\n  - {model: base, parameters: {weight: 0.5}}\n",
    "ties": "merge_method: ties\nbase_model: base\nmodels:\n"
    "  - {model: math, parameters: {weight: 0.5, density: 0.5}}\n"
    "  - {model: code, parameters: {weight: 0.5, density: 0.5}}\n",
    "dare": "merge_method: dare_linear\nbase_model: base\nmodels:\n"
    "  - {model: math, parameters: {weight: 1.0, density: 0.5}}\n",
    "bfloat16": "merge_method: slerp\nbase_model: base\nmodels: [{model: math}]\n"
    "parameters: {t: 0.3}\ndtype: bfloat16\n",
}
EXTRACT = "extract_lora: {model: MODEL, max_rank: 4MORE}\nbase_model: base\n"


def extraction(model: str, more: str = "") -> str:
    return EXTRACT.replace("MODEL", model).replace("MORE", more)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_family(tmp_path, LLAMA)
    return tmp_path


def made(folder: Path, out: str, recipe: str) -> Path:
    (folder / "recipe.yaml").write_text(recipe)
    return run(folder, out)


@pytest.mark.parametrize("kind", MERGES)
def test_the_adapter_is_that_of_the_merged_model_in_files(kind: str, models: Path) -> None:
    made(models, "merged", MERGES[kind])
    wanted = made(models, "wanted", extraction("merged"))
    stage = f"name: first\n{MERGES[kind]}---\n"
    found = made(models, "found", stage + extraction("first"))
    assert shards_of(found) == shards_of(wanted)
    config = "adapter_config.json"
    assert (found / config).read_bytes() == (wanted / config).read_bytes()
    assert "first" in (found / "README.md").read_text()
    with working_in(models):
        assert resumerge.verify("found", state_dir="found.state", sources=True).damaged == {}


def test_what_the_stage_leaves_as_it_is_is_not_in_the_adapter(models: Path) -> None:
    adapter = write_adapter(models / "adapter")
    stage = f"name: first\nmerge_method: passthrough\nmodels: [{{model: base+{adapter}}}]\n---\n"
    out = made(models, "out", stage + extraction("first"))
    [told] = resumerge.status(out, state_dir=models / "out.state")["runs"]
    modules = {row["module"] for row in told["extraction"]["modules"]}
    assert modules == {"model.layers.1.mlp.up_proj", "model.layers.3.self_attn.q_proj"}


def test_ranks_are_chosen_and_a_kill_changes_nothing(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = f"name: first\n{MERGES['ties']}---\n" + extraction("first", ", energy: 0.6")
    (models / "recipe.yaml").write_text(recipe)
    check_a_kill(models, Factors, 9, monkeypatch)


def test_a_stage_with_an_adapter(models: Path) -> None:
    adapter = write_adapter(models / "adapter")
    made(models, "merged", MERGES["linear"])
    wanted = made(models, "wanted", extraction(f"merged+{adapter}"))
    stage = f"name: first\n{MERGES['linear']}---\n"
    assert shards_of(made(models, "out", stage + extraction(f"first+{adapter}"))) == shards_of(
        wanted
    )


def test_a_stage_is_kept_beside_an_adapter_of_one_rank(models: Path) -> None:
    stage = f"name: first\n{MERGES['linear']}---\n"
    (models / "recipe.yaml").write_text(stage + extraction("first"))
    out = run(models, "out", keep=("first",))
    merged = made(models, "merged", MERGES["linear"])
    assert shards_of(out / "stages/first") == shards_of(merged)
    (models / "recipe.yaml").write_text(stage + extraction("first", ", energy: 0.9"))
    with pytest.raises(InputError, match="beside an adapter whose ranks its changes choose"):
        run(models, "other", keep=("first",))
    assert not (models / "other").exists()


def test_an_adapter_is_the_result_alone() -> None:
    other = "---\nmerge_method: linear\nmodels: [{model: first}]\n"
    with pytest.raises(InputError, match="is the result of a recipe, and no stage"):
        parse_recipe("name: first\n" + extraction("math") + other)


def test_the_base_model_is_in_files() -> None:
    stage = f"name: first\n{MERGES['linear']}---\n"
    text = stage + extraction("math").replace("base_model: base", "base_model: first")
    with pytest.raises(InputError, match="is a model in files, and no stage"):
        parse_recipe(text)
