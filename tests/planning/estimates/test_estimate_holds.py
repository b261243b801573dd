"""Promise: `run` takes the memory and the disk space that `plan` predicts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from merging import working_in
from safetensors.numpy import load_file, save_file
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.engine.checks.memory import fit_threads
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.options import Options
from resumerge.planning import Plan, estimate
from resumerge.recipe import parse_recipe

pytestmark = pytest.mark.cold_start

SLERP = "merge_method: slerp\nbase_model: base\nmodels: [{model: math}]\nparameters: {t: 0.5}\n"
TIES = """
merge_method: ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.5, density: 0.5}}
  - {model: code, parameters: {weight: 0.5, density: 0.5}}
parameters: {rescale: true}
"""
DARE = TIES.replace("ties", "dare_ties")
FUSION = SLERP.replace("slerp", "arcee_fusion").replace("parameters: {t: 0.5}\n", "")
CASES = [(TIES, 2), (DARE, 4), (SLERP, 1), (FUSION, 2)]
LINEAR = "merge_method: linear\nmodels: [{model: math, parameters: {weight: 1}}]\n"


def planned(folder: Path, recipe: str, vocabulary: int = 48, *, tied: bool = False) -> Plan:
    """Write a family of models with that many rows in embeddings; return a recipe's plan."""
    write_family(folder, {**LLAMA, "vocab_size": vocabulary, "tie_word_embeddings": tied})
    with working_in(folder):
        return Session(Options()).plan(parse_recipe(recipe))


def test_memory_grows_with_threads_and_models(tmp_path: Path) -> None:
    one, three = planned(tmp_path / "1", LINEAR, 100_000), planned(tmp_path / "3", TIES, 100_000)
    assert (
        estimate(one).memory.need(1).peak_rss
        < estimate(one).memory.need(2).peak_rss
        < estimate(one).memory.need(3).peak_rss
    )
    assert estimate(one).memory.need(2).peak_rss < estimate(three).memory.need(2).peak_rss


def test_the_statistics_of_a_tensor_and_of_the_next_are_held_at_once(tmp_path: Path) -> None:
    """Statistics of the next tensor (head, embedding) begin before those of the first are done."""
    two, one = (planned(tmp_path / str(t), TIES, 100_000, tied=t) for t in (False, True))
    assert estimate(one).memory.need(2).shared > 1_000_000
    assert estimate(two).memory.need(2).shared == pytest.approx(
        2 * estimate(one).memory.need(2).shared, rel=0.01
    )


def test_memory_does_not_grow_with_tensors_larger_than_a_selection_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.kernels.selection.limits.MOST_COLLECTED", 1 << 14)
    monkeypatch.setattr("resumerge.kernels.selection.limits.LARGEST_SAMPLE", 1 << 10)
    large, larger = planned(tmp_path / "1", TIES, 70_000), planned(tmp_path / "2", TIES, 140_000)
    assert estimate(large).memory.need(2).peak_rss == estimate(larger).memory.need(2).peak_rss


def test_a_small_budget_takes_threads_away_and_a_smaller_one_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, TIES, 70_000)
    needs = [estimate(plan).memory.need(threads).enough for threads in (1, 2, 3)]
    assert fit_threads(estimate(plan).memory, 3, needs[2]) == 3
    assert fit_threads(estimate(plan).memory, 3, needs[2] - 1) == 2
    assert fit_threads(estimate(plan).memory, 3, needs[0]) == 1
    with pytest.raises(InputError, match="memory budget is too small"):
        fit_threads(estimate(plan).memory, 3, needs[0] - 1)


def test_local_models_need_no_download(tmp_path: Path) -> None:
    found = estimate(planned(tmp_path, TIES))
    assert (found.download, len(found.missing)) == (0, 0)
    weights = tmp_path.glob("*/model.safetensors")
    assert found.cached == sum(path.stat().st_size for path in weights)


@pytest.mark.parametrize(
    ("recipe", "threads"), CASES, ids=["ties", "dare_ties", "slerp", "arcee_fusion"]
)
def test_a_merge_of_many_blocks_takes_what_was_predicted(
    recipe: str, threads: int, large_llamas: Path, tmp_path: Path
) -> None:
    """The merge runs in a process of its own, whose peak the kernel measures.

    The memory of the program itself differs between machines: a merge of small models measures it.
    """
    small = write_family(tmp_path / "models", LLAMA)
    little, assumed = merged(small, recipe, threads, tmp_path / "little")
    predicted, measured = merged(large_llamas, recipe, threads, tmp_path / "large")
    base = assumed["memory"]["peak_rss"] - little["memory"]["predicted_peak_rss"]
    found = base + predicted["memory"]["predicted_peak_rss"]
    assert 0.85 < found / measured["memory"]["peak_rss"] < 1.15
    growth = measured["memory"]["peak_rss"] - assumed["memory"]["peak_rss"]
    assert threads > 2 or growth < 150_000_000
    out = tmp_path / "large" / "out"
    written = sum(path.stat().st_size for path in out.iterdir())
    shards = sum(path.stat().st_size for path in out.glob("*.safetensors"))
    assert shards == predicted["output_bytes"]
    assert shards <= written <= predicted["disk"]["needed"]
    shutil.rmtree(out)


def test_a_merge_of_many_tensors_takes_what_was_predicted(tmp_path: Path) -> None:
    """A large mixture has tens of thousands of tensors, so that the plan itself takes memory."""
    recipe = "merge_method: passthrough\nmodels: [{model: base}]\n"
    few, many = (write_family(tmp_path / name, LLAMA) for name in ("few", "many"))
    names = [f"model.layers.0.mlp.experts.{n}.up_proj.weight" for n in range(6000)]
    tensors = load_file(many / "base" / "model.safetensors")
    tensors |= {name: np.zeros((2, 2), np.float32) for name in names}
    save_file(tensors, many / "base" / "model.safetensors")
    little, assumed = merged(few, recipe, 2, tmp_path / "little")
    predicted, measured = merged(many, recipe, 2, tmp_path / "large")
    base = assumed["memory"]["peak_rss"] - little["memory"]["predicted_peak_rss"]
    found = base + predicted["memory"]["predicted_peak_rss"]
    assert 0.85 < found / measured["memory"]["peak_rss"] < 1.15


def merged(
    models: Path, recipe: str, threads: int, folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan and run a merge; return the document of `plan`, and the run's from `status`."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(recipe)
    with working_in(models):
        predicted = resumerge.plan(folder / "recipe.yaml", threads=threads)
        command = ["run", folder / "recipe.yaml", folder / "out", "--threads", str(threads)]
        done = subprocess.run(
            [sys.executable, "-m", "resumerge", *command, "--state-dir", folder / "state"],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    [run] = resumerge.status(state_dir=folder / "state")["runs"]
    return predicted, run
