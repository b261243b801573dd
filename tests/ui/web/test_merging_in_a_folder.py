"""Promise: what a page starts is `resumerge run` itself, which is stopped and resumed."""

from __future__ import annotations

from pathlib import Path

import held_average
import pytest
from merging import merge, shards_of
from tiny_models import LLAMA, write_family
from waiting import wait_until

from resumerge.errors import InputError
from resumerge.ui.web.workspace import Workspace

LINEAR = "merge_method: linear\nmodels: [{model: base}, {model: math}]\nparameters: {weight: 0.5}\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    place = write_family(tmp_path / "place", LLAMA)
    monkeypatch.chdir(place)
    return Workspace(place)


def state(workspace: Workspace, run: str) -> str:
    return str(workspace.status(run)["state"])


def test_a_plan_tells_of_models_in_the_folder_and_writes_nothing(workspace: Workspace) -> None:
    before = sorted(workspace.folder.rglob("*"))
    assert workspace.plan(LINEAR, "merged")["problems"] == []
    [problem] = workspace.plan(LINEAR.replace("linear", "liner"), "")["problems"]
    assert (problem["where"], problem["line"]) == ("recipe", 1)
    assert sorted(workspace.folder.rglob("*")) == before


def test_a_merge_gives_the_bytes_of_the_command(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.merge(LINEAR, "merged")
    wait_until(lambda: state(workspace, run) == "done")
    assert workspace.names() == [run]
    expected = merge(workspace.folder, LINEAR, tmp_path / "expected")
    assert shards_of(workspace.folder / "merged") == shards_of(expected)
    assert (workspace.folder / "recipes" / "merged.yaml").read_text() == LINEAR


def test_a_refusal_is_the_commands_own(workspace: Workspace) -> None:
    with pytest.raises(InputError) as refused:
        workspace.merge(LINEAR.replace("math", "./missing"), "merged")
    [problem] = refused.value.problems
    assert (problem.where, problem.line) == ("recipes/merged.yaml", 2)
    assert not (workspace.folder / "merged").exists() and workspace.names() == []


def test_what_lies_in_the_folder_is_not_imported(workspace: Workspace) -> None:
    (workspace.folder / "yaml").mkdir()
    (workspace.folder / "yaml" / "__init__.py").write_text("raise SystemExit('imported')")
    run = workspace.merge(LINEAR, "merged")
    wait_until(lambda: state(workspace, run) == "done")


@pytest.mark.needs("torch")
def test_it_is_stopped_and_resumed(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    for name, value in held_average.variables(hold).items():
        monkeypatch.setenv(name, value)
    run = workspace.merge(held_average.RECIPE, "merged")
    assert state(workspace, run) == "running"
    with pytest.raises(InputError, match="Another process is working on this run"):
        workspace.merge(held_average.RECIPE, "merged")
    # The run is locked before its attempt begins: stopped in between, it would have none.
    wait_until(held_average.reached(hold).exists)
    workspace.stop(run)
    wait_until(lambda: state(workspace, run) == "interrupted")
    hold.unlink()
    assert workspace.status(run)["attempts"][0]["outcome"] == "interrupted"
    workspace.resume(run)
    wait_until(lambda: state(workspace, run) == "done")
    assert len(workspace.status(run)["attempts"]) == 2
    other = workspace.merge(held_average.RECIPE, "uninterrupted")
    wait_until(lambda: state(workspace, other) == "done")
    merged, expected = workspace.folder / "merged", workspace.folder / "uninterrupted"
    assert shards_of(merged) == shards_of(expected)
