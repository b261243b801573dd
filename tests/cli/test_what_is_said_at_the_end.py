"""Promise: at its end a run names what may be done next, and nothing that cannot be done."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from resumerge.engine.reporter import Result
from resumerge.ui.progress.console_reporter import ConsoleReporter


@pytest.mark.parametrize("is_here", [True, False])
def test_only_a_model_that_is_here_can_be_uploaded(is_here: bool, tmp_path: Path) -> None:
    out, ledger = tmp_path / "out", tmp_path / "state" / "run-1" / "ledger.db"
    out.mkdir()
    if is_here:
        (out / "config.json").write_text("{}")
    shown = io.StringIO()
    reporter = ConsoleReporter(Console(file=shown, width=500), bar=False)
    mirror = None if is_here else "hf://org/far"
    reporter.done(Result("run-1", out, ledger, mirror=mirror, notes=("it lacks a tokenizer",)))
    lines = shown.getvalue().splitlines()
    state = f"--state-dir {tmp_path / 'state'}"
    assert (f"To upload it: resumerge push {out} ORG/NAME {state}" in lines) == is_here
    assert lines[-2:] == [
        f"To remove its ledger: resumerge clean run-1 {state}",
        "note: it lacks a tokenizer",
    ]
