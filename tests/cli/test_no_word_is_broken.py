"""Promise: in a narrow terminal lines end at spaces. A path or a command that is wider than the
terminal has a line of its own, which can be copied.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from commands import each, python, separated
from terminals import ended, in_a_terminal

COLUMNS = 50

BAD = """
merge_methd: linear
merge_method: linearr
models:
  - {model: math, parameters: {weight: 1, densty: 1}}
  - {model: /a/folder/with/a/very/long/name/that/is/not/there/at/all, parameters: {weight: 1}}
"""


CASES = [
    ("clean", 0, "Remove 1 run"),  # first: it reads the answer
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
    ("cache check linear.yaml", 0, "Hub"),
    ("methods", 0, "breadcrumbs_ties"),
    ("resume nosuch", 2, "There is no run"),
    ("init new.yaml --method ties --models a,b --base c", 0, "Wrote"),
    ("--help", 0, "Usage"),
]
HELP = [*("init", "plan", "run", "resume", "status", "verify", "push", "clean")]
HELP += ["methods", "demo", "cache check"]

Said = dict[str, tuple[str, int]]


@pytest.fixture(scope="module")
def said(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """Run commands in a narrow terminal; return the plain output and the exit code of each."""
    folder = tmp_path_factory.mktemp("narrow")
    for source in place.iterdir():
        (folder / source.name).symlink_to(source)
    (folder / "bad.yaml").write_text(BAD)
    commands = [*(words for words, _, _ in CASES), *(f"{command} --help" for command in HELP)]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    pid, terminal = in_a_terminal([sys.executable, "-c", each(commands)], folder, environment)
    os.write(terminal, b"n\n")
    _, text = ended(pid, terminal)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return dict(zip(commands, separated(plain), strict=True))


@pytest.mark.parametrize(("words", "code", "says"), CASES)
def test_lines_end_at_spaces(words: str, code: int, says: str, said: Said) -> None:
    text, found = said[words]
    assert says in text
    assert found == code, text
    check_lines(text)


@pytest.mark.parametrize("command", HELP)
def test_lines_of_help_end_at_spaces(command: str, said: Said) -> None:
    text, code = said[f"{command} --help"]
    assert code == 0 and text.count("Usage: ") == 1, text
    check_lines(text)


def check_lines(text: str) -> None:
    for line in re.split(r"[\r\n]+", text):
        copied = line.strip().startswith(("resumerge ", "AutoModel"))
        assert len(line) <= COLUMNS or " " not in line.strip() or copied, text


def words_of(text: str) -> set[str]:
    return {word.strip("[]().,:;'\"") for word in text.split()}


UNITS = {"s", *(size + per for size in ("kB", "MB", "GB") for per in ("", "/s", "/s,", "/s;"))}
"""They differ between two measurements."""


def test_the_words_are_those_of_a_wide_terminal(place: Path) -> None:
    commands = ["run --help", "methods", "plan linear.yaml --memory 1GB", "status"]
    wide, narrow = (
        separated(python(each(commands), cwd=place, COLUMNS=columns).stdout)
        for columns in ("400", str(COLUMNS))
    )
    figures = re.compile(r"[0-9.]+")
    for (wide_text, _), (narrow_text, _) in zip(wide, narrow, strict=True):
        difference = words_of(narrow_text) ^ words_of(wide_text)
        assert len(words_of(wide_text)) > 20
        assert {word for word in difference if not figures.fullmatch(word)} <= UNITS
