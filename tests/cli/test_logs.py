"""Promise: the program logs only on request; then it logs what it did."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from commands import resumerge
from terminals import ended, in_a_terminal


def merge(place: Path, tmp_path: Path, *words: str, **environment: str) -> tuple[int, str]:
    paths = (tmp_path / "out", "--state-dir", tmp_path / "state")
    done = resumerge("run", "linear.yaml", *paths, *words, cwd=place, **environment)
    return done.returncode, done.stderr


def test_nothing_by_default(place: Path, tmp_path: Path) -> None:
    code, told = merge(place, tmp_path)
    assert code == 0
    assert "INFO" not in told
    assert "DEBUG" not in told


@pytest.mark.parametrize(
    ("words", "environment", "levels"),
    [
        (["--verbose"], {}, {"INFO"}),
        (["-vv"], {}, {"INFO", "DEBUG"}),
        ([], {"RESUMERGE_LOG": "info"}, {"INFO"}),
        (["-v"], {"RESUMERGE_LOG": "debug"}, {"INFO", "DEBUG"}),
    ],
)
def test_what_is_done_is_logged(
    words: list[str], environment: dict[str, str], levels: set[str], place: Path, tmp_path: Path
) -> None:
    code, told = merge(place, tmp_path, *words, **environment)
    assert code == 0
    assert {level for level in ("INFO", "DEBUG") if f" {level} resumerge." in told} == levels


def test_a_bar_is_drawn_below_what_is_logged(place: Path, tmp_path: Path) -> None:
    """A log line on the terminal never shares a line with the progress bar."""
    words = ["run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state", "-v"]
    program = "from resumerge.cli.main import main\nmain()"
    command = [sys.executable, "-c", program, *map(str, words)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "400"}
    code, said = ended(*in_a_terminal(command, place, environment))
    assert code == 0
    logged = [line for line in said.split("\n") if " INFO " in line]
    assert logged
    for line in logged:
        shown = re.split(r"\r|\x1b\[[0-9;?]*[A-Za-z]", line.rstrip("\r"))
        assert any(re.match(r"\d{4}-.* INFO ", part) for part in shown), line


def test_a_file_may_take_it(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "a log"
    code, told = merge(place, tmp_path, RESUMERGE_LOG=f"debug:{file}")
    assert code == 0
    assert "DEBUG" not in told
    assert " DEBUG resumerge." in file.read_text()


@pytest.mark.parametrize("value", ["loud", "debug:/absent/log", ":file"])
def test_what_cannot_be_is_refused(value: str, place: Path, tmp_path: Path) -> None:
    code, told = merge(place, tmp_path, RESUMERGE_LOG=value)
    assert code == 2
    assert "RESUMERGE_LOG" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["status", "methods", "verify done", "cache check linear.yaml"])
def test_every_command_takes_it(command: str, place: Path) -> None:
    assert resumerge(*command.split(), "-v", cwd=place).returncode == 0
    assert (
        "--verbose"
        in resumerge(*command.split()[:-1], command.split()[-1], "--help", cwd=place).stdout
    )
