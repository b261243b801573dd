"""Promise: the page reports the end of a command as the command itself reports it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from resumerge.errors import (
    DoubtfulNumbers,
    InputError,
    Interrupted,
    Problem,
    Reason,
    Resumable,
    ResumergeError,
)
from resumerge.ui.web.commands import Commands

PROGRAM = """#!/bin/sh
echo "under way" >&2
for last; do code=$before before=$last; done
printf '%s\\n' "$last"
exit "$code"
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Replace the program by one that prints its last argument, and exits with the one before."""
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    return Commands(tmp_path, tmp_path / "state")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError([Problem("It is wrong", "recipe", line=3)]), 2),
        (Resumable(Reason.NETWORK, "The Hub is gone"), 75),
        (DoubtfulNumbers("out", ("a tensor has NaN",)), 75),
        (Interrupted(signal.SIGINT), 130),
    ],
)
def test_an_error_is_the_commands_own(error: ResumergeError, code: int, stand_in: Commands) -> None:
    printed = json.dumps(error.as_json())
    for act in (stand_in.document, stand_in.detach):
        with pytest.raises(type(error)) as raised:
            act("push", str(code), printed)
        assert raised.value.as_json() == error.as_json()
    lines = stand_in.follow(["push", str(code), printed], lambda process: None)
    assert next(lines) == "under way"
    with pytest.raises(type(error)):
        next(lines)


def test_what_is_said_comes_before_the_document(stand_in: Commands) -> None:
    began: list[Any] = []
    assert list(stand_in.follow(["push", "0", "{}"], began.append)) == ["under way", {}]
    assert len(began) == 1


def test_a_crash_is_told_with_what_was_said(stand_in: Commands) -> None:
    with pytest.raises(InputError, match="`resumerge push` failed") as raised:
        stand_in.document("push", "1", "no JSON")
    assert raised.value.problems[0].found == "1: under way"
