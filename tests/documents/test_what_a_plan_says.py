"""Promise: `plan` says what a run would do, and lists every problem beside what is known."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from merging import merge, working_in
from tiny_models import TWO_LAYERS, write_family

import resumerge
from resumerge.documents import plan_report
from resumerge.documents.plan_report import describe_plan
from resumerge.engine.checks import disk
from resumerge.engine.checks.memory import most_threads
from resumerge.errors import InputError, Reason, Resumable
from resumerge.options import Options
from resumerge.sizes import show_size

RECIPE = (
    "merge_method: linear\nmodels: [{model: base}, {model: math}]\n"
    "parameters: {weight: 0.5}\ndtype: float32\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), TWO_LAYERS)


@pytest.fixture
def config(models: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield the path of a recipe; the working folder has its models."""
    path = tmp_path / "merge.yaml"
    path.write_text(RECIPE)
    with working_in(models):
        yield path


def described(config: Path, out: Path | None = None, **options: Any) -> dict[str, Any]:
    options.setdefault("state_dir", config.with_name("state"))
    found = describe_plan(config, out, Options(**options))
    assert not config.with_name("state").exists(), "nothing is written"
    return found


def problems(found: dict[str, Any]) -> list[str]:
    return [problem["what"] for problem in found["problems"]]


def test_what_a_run_would_do(config: Path, tmp_path: Path) -> None:
    found = described(
        config, tmp_path / "a" / "out", threads=2, memory=500_000_000, shard_size=8000
    )
    assert found["problems"] == [] and not (tmp_path / "a").exists()
    assert found["threads"] == 2 and found["memory"]["budget"] == 500_000_000
    assert 0 < found["memory"]["predicted_peak_rss"] < 500_000_000
    assert found["shards"] > 3 and found["units"] > found["shards"]
    assert found["disk"]["needed"] > found["output_bytes"] > 0
    assert found["host"]["disk"]["folder"] == str(tmp_path / "a" / "out")
    assert found["host"]["disk"]["free"] == found["disk"]["free"] > 0
    assert found["host"]["disk"]["read_bytes_per_s"] > 0 and "speed" not in found
    assert [source["model"] for source in found["sources"]] == ["base", "math"]
    size = (Path("base") / "model.safetensors").stat().st_size
    assert all(0 < source["bytes_needed"] < size for source in found["sources"])
    assert not any("threads" in note for note in found["notes"])
    assert found["largest_unit"]["name"] in ("lm_head.weight", "model.embed_tokens.weight")
    chosen = {choice["what"]: choice["chosen"] for choice in found["choices"]}
    assert (chosen["threads"], chosen["memory"]) == (2, 500_000_000)


def test_a_recipe_that_cannot_be_planned_has_the_same_fields(config: Path) -> None:
    planned = described(config)
    config.write_text(RECIPE.replace("base", "nowhere"))
    refused = described(config)
    assert refused["problems"] and not planned["problems"]
    assert {*refused} == {*planned}


def test_more_threads_than_can_be_of_use_are_noted(config: Path) -> None:
    many = described(config, threads=most_threads() + 1)
    assert any("threads are more than this machine can use" in note for note in many["notes"])
    assert many["threads"] <= most_threads()


def test_too_little_memory_and_no_such_device_are_told_beside_the_rest(config: Path) -> None:
    found = described(config, memory=1_000_000, device="gpu")
    assert len(problems(found)) == 2
    assert any("device" in what for what in problems(found))
    assert any("memory budget is too small" in what for what in problems(found))
    assert found["units"] > 0 and found["threads"] == 1
    assert found["memory"]["budget"] == 1_000_000


@pytest.mark.needs("torch")
def test_a_gpu_is_looked_for_where_torch_computes_and_is_a_note_elsewhere(config: Path) -> None:
    found = described(config, device="cuda:99")
    assert not problems(found) and any("No GPU is used" in note for note in found["notes"])
    config.write_text(RECIPE.replace("linear", "iso_c") + "base_model: base\n")
    found = described(config, device="cuda:99")
    assert any("does not have the device" in what for what in problems(found))


@pytest.mark.parametrize("named", [True, False])
def test_a_full_disk_is_told_once(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """The problem names the output's folder, or the working folder if no output is named."""
    monkeypatch.setattr(disk, "free_bytes", lambda path: 1000)
    found = described(config, tmp_path / "out" if named else None)
    [problem] = found["problems"]
    place = tmp_path if named else Path.cwd()
    assert "disk" in problem["what"] and str(place) in problem["where"]


def test_a_folder_with_other_files_is_told_and_one_with_a_run_is_not(
    config: Path, models: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("")
    assert len(problems(described(config, other))) == 1
    merge(models, RECIPE, tmp_path / "out")
    found = describe_plan(config, tmp_path / "out", Options(state_dir=tmp_path / "out.state"))
    assert found["problems"] == []


def test_a_path_that_cannot_be_used_is_told_without_a_plan(config: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = described(config, tmp_path / "file" / "out")
    assert len(problems(found)) == 1 and found["units"] == 0
    assert found["time"] == {"estimate_s": 0.0, "basis": "nothing could be planned"}
    assert found["memory"]["predicted_peak_rss"] == 0 and found["memory"]["budget"] > 0


def test_a_mirror_that_cannot_be_one_is_told_with_what_else_is_wrong(
    config: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("")
    found = described(config, other, mirror="what://is/this")
    assert len(problems(found)) == 2 and found["units"] > 0
    out = tmp_path / "out"
    inside = described(config, out, mirror=str(out / "mirror"))
    assert len(problems(inside)) == 1 and not out.exists()


def test_a_model_that_is_away_for_now_is_a_problem_and_says_what_to_do(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*words: Any) -> None:
        raise Resumable(Reason.NETWORK, "The Hub cannot be reached\nwait a while\nor work offline")

    monkeypatch.setattr(plan_report, "pinned_plan", away)
    [problem] = described(config)["problems"]
    assert problem["what"] == "The Hub cannot be reached"
    assert problem["fix"] == "wait a while or work offline"
    assert problem["where"] == str(config)


@pytest.mark.parametrize("frees", [False, True])
def test_the_disk_space_of_a_plan_is_what_the_run_asks_for(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frees: bool
) -> None:
    options: dict[str, Any] = {"state_dir": tmp_path / "state", "shard_size": 8000}
    if frees:
        options |= {"mirror": str(tmp_path / "mirror"), "mirror_then_delete": True}
    needed = resumerge.plan(config, tmp_path / "out", **options)["disk"]["needed"]
    assert (needed < resumerge.plan(config, tmp_path / "out")["disk"]["needed"]) == frees
    monkeypatch.setattr(disk, "free_bytes", lambda path: needed - 1)
    with pytest.raises(InputError, match=f"expected: {show_size(needed)} free"):
        resumerge.run(config, tmp_path / "out", **options)
    monkeypatch.setattr(disk, "free_bytes", lambda path: needed)
    resumerge.run(config, tmp_path / "out", **options)


def test_what_a_run_has_written_needs_no_space_again(config: Path, tmp_path: Path) -> None:
    options = {"state_dir": tmp_path / "state"}
    before = resumerge.plan(config, tmp_path / "out", **options)
    resumerge.run(config, tmp_path / "out", **options)
    after = resumerge.plan(config, tmp_path / "out", **options)
    assert before["disk"]["needed"] - after["disk"]["needed"] == before["output_bytes"]


def test_an_output_with_a_run_of_another_recipe(config: Path, tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    resumerge.run(config, out, state_dir=state)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in files}
    assert resumerge.plan(config, out, state_dir=state)["problems"] == []
    other = {
        "merge_method": "linear",
        "models": [{"model": "base"}, {"model": "math"}],
        "parameters": {"weight": 0.7},
        "dtype": "float32",
    }
    [problem] = resumerge.plan(other, out, state_dir=state)["problems"]
    assert {path: path.stat().st_mtime_ns for path in files} == before
    with pytest.raises(InputError) as refused:
        resumerge.run(other, out, state_dir=state)
    assert problem["what"] == refused.value.problems[0].what
    assert "0.5 -> 0.7" in problem["found"] and problem["fix"].count("name another output") == 1
    shutil.rmtree(out)
    assert resumerge.plan(other, out, state_dir=state)["problems"] == [], "nothing to lose is left"
