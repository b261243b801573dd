"""Promise: in a narrow terminal lines end at spaces. A path or a command that is wider than the
terminal has a line of its own, which can be copied.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from commands import each_help, resumerge
from terminals import ended, in_a_terminal

COLUMNS = 50

BAD = """
merge_methd: linear
merge_method: linearr
models:
  - {model: math, parameters: {weight: 1, densty: 1}}
  - {model: /a/folder/with/a/very/long/name/that/is/not/there/at/all, parameters: {weight: 1}}
"""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("plan linear.yaml", 0, "threads"),
        ("plan bad.yaml", 2, "Did you mean"),
        ("run bad.yaml new", 2, "Did you mean"),
        ("run linear.yaml new --state-dir state2", 0, "To upload it:"),
        ("run linear.yaml new --memroy 1GB", 2, "'--memory-wait'"),
        ("run linear.yaml math", 2, "other files"),
        ("run linear.yaml small --memory 10MB", 2, "at least"),
        ("status done", 0, "attempts"),
        ("status", 0, "100%"),
        ("status done --watch", 0, "ledger"),
        ("verify done", 0, "intact"),
        ("clean", 0, "Remove 1 run"),
        ("cache check linear.yaml", 0, "Hub"),
        ("methods", 0, "breadcrumbs_ties"),
        ("resume nosuch", 2, "There is no run"),
        ("init new.yaml --method ties --models a,b --base c", 0, "Wrote"),
        ("--help", 0, "Usage"),
    ],
)
def test_lines_end_at_spaces(words: str, code: int, says: str, place: Path, tmp_path: Path) -> None:
    for source in place.iterdir():
        (tmp_path / source.name).symlink_to(source)
    (tmp_path / "bad.yaml").write_text(BAD)
    program = "from resumerge.cli.main import main\nmain()"
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    command = [sys.executable, "-c", program, *words.split()]
    pid, terminal = in_a_terminal(command, tmp_path, environment)
    if words == "clean":
        os.write(terminal, b"n\n")
    found, said = ended(pid, terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    assert says in text
    assert found == code, text
    check_lines(text)


def test_lines_of_help_end_at_spaces(tmp_path: Path) -> None:
    commands = [*("init", "plan", "run", "resume", "status", "verify", "push", "clean")]
    commands += ["methods", "demo", "cache check"]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    command = [sys.executable, "-c", each_help(commands)]
    found, said = ended(*in_a_terminal(command, tmp_path, environment))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    assert found == 0 and text.count("Usage: ") == len(commands), text
    check_lines(text)


def check_lines(text: str) -> None:
    for line in re.split(r"[\r\n]+", text):
        copied = line.strip().startswith(("resumerge ", "AutoModel"))
        assert len(line) <= COLUMNS or " " not in line.strip() or copied, text


def words_of(text: str) -> set[str]:
    return {word.strip("[]().,:;'\"") for word in text.split()}


UNITS = {"s", *(size + per for size in ("kB", "MB", "GB") for per in ("", "/s", "/s,", "/s;"))}
"""They differ between two measurements."""


@pytest.mark.parametrize("words", ["run --help", "methods", "plan linear.yaml", "status"])
def test_the_words_are_those_of_a_wide_terminal(words: str, place: Path) -> None:
    wide = resumerge(*words.split(), cwd=place, COLUMNS="400").stdout
    narrow = resumerge(*words.split(), cwd=place, COLUMNS=str(COLUMNS)).stdout
    figures = re.compile(r"[0-9.]+")
    difference = words_of(narrow) ^ words_of(wide)
    assert {word for word in difference if not figures.fullmatch(word)} <= UNITS
