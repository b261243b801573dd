"""Promise: at its end a run names the possible next steps, and no others."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from resumerge.engine.reporter import Result
from resumerge.ui.progress.console_reporter import ConsoleReporter


def said(result: Result) -> list[str]:
    """Return the lines that a wide log shows at the end of a run."""
    shown = io.StringIO()
    ConsoleReporter(Console(file=shown, width=500), bar=False).done(result)
    return shown.getvalue().splitlines()


@pytest.mark.parametrize(
    ("files", "is_here", "loads"),
    [
        (["mergekit_config.yml", "config.json"], True, True),
        (["mergekit_config.yml"], True, False),  # a checkpoint, which no library loads by its name
        (["model-00001-of-00002.safetensors"], False, False),  # the mirror has the other shard
        ([], False, False),
    ],
)
def test_only_a_model_that_is_here_can_be_uploaded(
    files: list[str], is_here: bool, loads: bool, tmp_path: Path
) -> None:
    out, ledger = tmp_path / "out", tmp_path / "state" / "run-1" / "ledger.db"
    out.mkdir()
    for name in files:
        (out / name).write_text("{}")
    lines = said(
        Result("run-1", out, ledger, mirror="hf://org/far", notes=("it lacks a tokenizer",))
    )
    state = f"--state-dir {tmp_path / 'state'}"
    assert (f"To upload it: resumerge push {out} ORG/NAME {state}" in lines) == is_here
    assert any(line.startswith("To load it:") for line in lines) == loads
    assert ("only there" in lines[0]) != is_here
    assert lines[-1] == "note: it lacks a tokenizer"
    assert not any("clean" in line for line in lines), "a ledger may stay: nothing has to be done"


def test_a_model_of_one_file_can_be_uploaded_as_it_is(tmp_path: Path) -> None:
    out, ledger = tmp_path / "merged.safetensors", tmp_path / "state" / "run-1" / "ledger.db"
    result = Result("run-1", out, ledger, mirror="hf://org/far")
    assert "only there" in said(result)[0]
    out.write_bytes(b"")
    there, *offered = said(result)
    assert f"{out}, and hf://org/far" in there
    assert offered[0].startswith(f"To upload it: resumerge push {out} ORG/NAME")
