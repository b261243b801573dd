"""Running the command line as its users do: a process, its exit code, what it printed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LINEAR = """
merge_method: linear
models:
  - {model: math, parameters: {weight: 1}}
  - {model: code, parameters: {weight: 1}}
"""

NOTES_SIGNALS = """
from resumerge.engine.resources.signals import StopRequest
handle, handled = StopRequest._handle, []
def note(self, signum, frame):
    try:
        handle(self, signum, frame)
    finally:
        handled.append(signum)
StopRequest._handle = note
"""
"""The beginning of a program that lists in `handled` the signals that its process has handled."""

DISK_FULL = """
import errno
from resumerge.storage import Storage
whole = Storage.write
def write(self, fd, data, offset):
    if offset > 10_000:
        raise OSError(errno.ENOSPC, "No space left on device")
    whole(self, fd, data, offset)
Storage.write = write
"""

STOPPED_BY = """
import os, signal
from resumerge.storage import Storage
whole = Storage.write
sent = False
def write(self, fd, data, offset):
    global sent
    if offset > 10_000 and not sent:
        sent = True
        os.kill(os.getpid(), signal.{})
    whole(self, fd, data, offset)
Storage.write = write
"""

BUG = """
from resumerge.engine.lifecycle.session import Session
def run(self, config, out):
    raise AssertionError("an invariant")
Session.run = run
"""


END = "\x1d"


def each(commands: Sequence[str]) -> str:
    """Return a program that runs these commands in one process; `separated` takes apart its output.

    Args:
        commands: words that follow ``resumerge``, with spaces between.
    """
    return f"""
import sys
from resumerge.cli.main import main
for command in {[*commands]}:
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit as ended:
        print(end=f"{END}{{ended.code or 0}}{END}", flush=True)
"""


def separated(text: str) -> list[tuple[str, int]]:
    """Return what each of the commands printed, and its exit code."""
    pieces = text.split(END)[:-1]
    return [(said, int(code)) for said, code in zip(pieces[::2], pieces[1::2])]


def resumerge(
    *words: object, cwd: Path, before: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder.

    Args:
        words: what follows ``resumerge``.
        before: Python to run in the process first, to break something.
        environment: variables to set.
    """
    return python(
        f"{before}\nfrom resumerge.cli.main import main\nmain()", *words, cwd=cwd, **environment
    )


def python(
    program: str, *words: object, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of Python in a folder, with words and variables that are set."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
    )
