"""A combination is planned, journaled, resumed to the same bytes, verified and reproduced."""

import json
from pathlib import Path

import pytest
import torch
from adapter_runs import check_a_kill, run
from lora_files import changes_in, write_lora_files
from merging import shards_of, working_in
from safetensors.torch import load_file, save_file

import resumerge
from resumerge.tensors import Combined

MODULES = {
    f"model.layers.{layer}.{name}": shape
    for layer in range(4)
    for name, shape in {"self_attn.q_proj": (64, 48), "mlp.up_proj": (96, 48)}.items()
}
RECIPE = """merge_method: dare_ties
models:
- {model: one, parameters: {weight: 0.7, density: 0.5}}
- {model: two, parameters: {weight: 0.4, density: 0.5}}
rank: 6
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {"base_model_name_or_path": "org/base", "task_type": "CAUSAL_LM"}
    write_lora_files(tmp_path / "one", MODULES, 1, rank=4, alpha=8, **config)
    write_lora_files(tmp_path / "two", MODULES, 2, rank=9, dtype=torch.bfloat16, **config)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


@pytest.mark.parametrize("computed", [1, 3, 7])
def test_killed_anywhere_and_resumed_it_has_the_same_bytes(
    computed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_a_kill(folder, Combined, computed, monkeypatch)


@pytest.mark.parametrize("method", ["dare_ties", "linear", "della"])
def test_the_number_of_threads_changes_no_bit(method: str, folder: Path) -> None:
    text = RECIPE.replace("dare_ties", method).replace("rank: 6\n", "")
    (folder / "recipe.yaml").write_text(text)
    assert shards_of(run(folder, "one-", threads=1)) == shards_of(run(folder, "three", threads=3))


def test_what_is_kept_is_told_of_each_module(folder: Path) -> None:
    out = run(folder, "out")
    with working_in(folder):
        [told] = resumerge.status("out", state_dir="out.state")["runs"]
        assert resumerge.verify("out", state_dir="out.state").damaged == {}
    assert told["extraction"] is None and told["accounts"]["numbers"] is None
    found = told["combination"]
    modules = {each["module"]: each["kept"] for each in found["modules"]}
    assert modules.keys() == MODULES.keys()
    assert all(0.5 < kept < 1.0 for kept in modules.values())
    assert min(modules.values()) < found["kept"] < max(modules.values())
    card = (out / "README.md").read_text()
    for name, kept in modules.items():
        assert f"| {name} | 6 | {100 * kept:.2f} % |" in card.replace("\\_", "_")
    assert "`one`" in card and "`two`" in card and "dare_ties" in card
    assert card.startswith("---\nbase_model:\n- org/base\nbase_model_relation: adapter\n")
    config = json.loads((out / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "org/base"
    assert (config["r"], config["rank_pattern"]) == (6, {})


def test_the_energy_is_that_of_the_best_matrices_of_the_rank(folder: Path) -> None:
    """The lost part is the last singular values of the result without `rank`."""
    small = changes_in(run(folder, "small"))
    (folder / "recipe.yaml").write_text(RECIPE.replace("rank: 6\n", ""))
    all_of_it = changes_in(run(folder, "whole"))
    [told] = resumerge.status(folder / "small", state_dir=folder / "small.state")["runs"]
    for row in told["combination"]["modules"]:
        values = torch.linalg.svdvals(all_of_it[row["module"]]).square()
        assert row["energy"] == pytest.approx(float(values.sum()), rel=1e-4)
        assert row["kept"] == pytest.approx(float(values[:6].sum() / values.sum()), rel=1e-4)
        lost = (small[row["module"]] - all_of_it[row["module"]]).square().sum()
        assert float(lost) == pytest.approx(float(values[6:].sum()), rel=1e-2)


def test_it_is_made_again_from_its_card(folder: Path) -> None:
    out = run(folder, "out")
    with working_in(folder):
        made = resumerge.reproduce("out", "again", state_dir="out.state")
    assert made.identical and shards_of(folder / "again") == shards_of(out)


def test_it_is_planned_and_explained(folder: Path) -> None:
    with working_in(folder):
        plan = resumerge.plan("recipe.yaml")
        told = resumerge.explain("recipe.yaml")
    assert plan["problems"] == [] and plan["shards"] == 1
    assert [source["model"] for source in plan["sources"]] == ["one", "two"]
    assert any("rank 6 at most" in note for note in plan["notes"])
    assert all(model["unused"] == [] for model in plan["accounts"]["sources"])
    assert "'density': 0.5" in str(told) and "dare_ties" in str(told)


def test_models_that_differ_in_their_base_are_told(folder: Path) -> None:
    file = folder / "two/adapter_config.json"
    file.write_text(file.read_text().replace("org/base", "org/other"))
    with working_in(folder):
        notes = resumerge.plan("recipe.yaml")["notes"]
    [note] = [note for note in notes if "base_model_name_or_path" in note]
    assert "org/base" in note and "org/other" in note


def test_a_change_of_an_adapter_is_noticed(folder: Path) -> None:
    """A new run of the same recipe reads the changed weights."""
    whole = run(folder, "out")
    file = folder / "one/adapter_model.safetensors"
    tensors = {name: 2.0 * tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file)
    assert shards_of(run(folder, "other")) != shards_of(whole)


def test_numbers_that_are_not_finite_are_refused(folder: Path) -> None:
    file = folder / "one/adapter_model.safetensors"
    tensors = load_file(file)
    name = "base_model.model.model.layers.2.mlp.up_proj.lora_B.weight"
    tensors[name][3, 1] = float("nan")
    save_file(tensors, file)
    with pytest.raises(resumerge.InputError, match="not finite"):
        run(folder, "out")
    assert not (folder / "out").exists()
