"""Promise: on a terminal Ctrl-C is answered at once, and the last line is the command that resumes;
the death of a worker repeats nothing that is on the screen.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from commands import NOTES_SIGNALS
from terminals import ended, in_a_terminal

STOPPED = f"""{NOTES_SIGNALS}
import os, signal, time
from resumerge.storage import Storage
whole, sent = Storage.write, []
def write(self, fd, data, offset):
    if offset > 10_000 and not sent:
        sent.append(os.kill(os.getppid(), signal.SIGINT))
        while not handled:
            time.sleep(0.02)
    whole(self, fd, data, offset)
Storage.write = write
"""
"""Signals the supervisor, and writes on once the worker has the signal: else it may end first."""

KILLED_ONCE = """
import os, signal
from pathlib import Path
from resumerge.storage import Storage
whole = Storage.write
def write(self, fd, data, offset):
    if offset > 10_000 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, fd, data, offset)
Storage.write = write
"""


def merge_on_a_terminal(place: Path, folder: Path, before: str) -> tuple[int, list[str]]:
    for name in ("math", "code", "linear.yaml"):
        (folder / name).symlink_to(place / name)
    program = f"{before}\nfrom resumerge.cli.main import main\nmain()"
    environment = {**os.environ, "COLUMNS": "300", "TERM": "xterm"}
    command = [sys.executable, "-c", program, "run", "linear.yaml", "out"]
    code, said = ended(*in_a_terminal(command, folder, environment))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    return code, [line.split("\r")[-1] for line in text.replace("\r\n", "\n").split("\n")]


def test_a_stop_is_answered_and_says_how_to_go_on(place: Path, tmp_path: Path) -> None:
    code, lines = merge_on_a_terminal(place, tmp_path, STOPPED)
    assert code == 130, lines
    stopping, stopped = (line for line in lines if line.startswith("Stop"))
    assert stopping.startswith("Stopping: ")
    assert stopped.startswith("Stopped by SIGINT")
    to_go_on, command = lines[-3:-1]
    assert to_go_on == "To resume:"
    assert command.startswith("resumerge resume out-")


@pytest.mark.parametrize("says", ["Run out-", "note: "])
def test_a_worker_that_is_killed_changes_nothing_of_what_was_said(
    says: str, place: Path, tmp_path: Path
) -> None:
    code, lines = merge_on_a_terminal(place, tmp_path, KILLED_ONCE)
    assert code == 0, lines
    assert (tmp_path / "killed").exists()
    done = next(number for number, line in enumerate(lines) if line.startswith("Done in"))
    assert len([line for line in lines[:done] if line.startswith(says)]) == 1, lines
    assert [line for line in lines if "A new worker is started" in line]
