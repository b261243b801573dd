"""Promise: a deleted model is reported as deleted: not as done, and not tensor by tensor."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from merging import working_in
from rich.console import Console
from tiny_models import write_family

import resumerge
from resumerge.cli import status as status_command
from resumerge.documents.history import attempt_seconds
from resumerge.ledger.run_store import RunStore
from resumerge.ui.html import page_file
from resumerge.ui.terminal.status import show_status
from resumerge.ui.terminal.verification import show_verification
from resumerge.ui.text.format import both_ends

RECIPE = {"merge_method": "linear", "models": [{"model": "math", "parameters": {"weight": 1}}]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model in a folder, and delete it."""
    folder = write_family(tmp_path_factory.mktemp("deleted"))
    with working_in(folder):
        resumerge.run(RECIPE, "out")
        assert not resumerge.status("out")["runs"][0]["output_deleted"]
        shutil.rmtree("out")
    return folder


def printed(drawing: Any) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(drawing)
    return captured.get()


def test_status_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    [run] = resumerge.status()["runs"]
    assert (run["state"], run["output_deleted"]) == ("done", True)
    for text in (
        printed(show_status({"runs": [run], "searches": []})),
        printed(show_status({"runs": [run, run], "searches": []})),
    ):
        assert "deleted" in text.split("\n")[0]
        assert "100%" not in text and "output was deleted" in text
    html = resumerge.status()._repr_html_()
    assert ">deleted<" in html and "0% committed" in html


def test_verify_is_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    [line] = printed(show_verification(resumerge.verify("out"))).splitlines()
    assert line.startswith(f"{place / 'out'}: deleted; it had ")


def test_the_attempt_that_runs_counts_as_work() -> None:
    now = {"started": "2020-01-01T00:00:00+00:00", "ended": None}
    assert attempt_seconds(now) > 1e8
    assert attempt_seconds({**now, "ended": "2020-01-01T00:01:00+00:00"}) == 60


def test_a_page_of_a_run_that_ended_meanwhile_has_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["running", "done", "done"])
    written = []
    monkeypatch.setattr(
        status_command, "status_json", lambda *words: {"runs": [{"state": next(states)}]}
    )
    monkeypatch.setattr(page_file, "write_report", lambda run, file: written.append(run["state"]))
    status_command._write_page(RunStore(tmp_path), "s3://b/x", tmp_path / "page.html")
    assert written == ["running", "done"]


def test_a_label_keeps_both_ends() -> None:
    assert both_ends("0 org/name", 26) == "0 org/name"
    long = both_ends("0 /content/drive/MyDrive/models/mistral-7b-math", 26)
    assert len(long) == 26
    assert long.startswith("0 /content") and long.endswith("7b-math")
