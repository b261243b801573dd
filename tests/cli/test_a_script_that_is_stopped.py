"""Promise: a user who stops `resumerge.run` in a script reads how to continue, in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import STOPPED_BY
from merging import shards_of

CALL = """
import resumerge
resumerge.run("linear.yaml", {out!r}, state_dir={state!r})
"""
HANDLED = """
import sys
import resumerge
from resumerge.errors import Interrupted, Resumable
try:
    resumerge.run("linear.yaml", {out!r}, state_dir={state!r})
except (Interrupted, Resumable) as stopped:
    print(stopped)
    sys.exit(stopped.exit_code)
"""


def script(text: str, place: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", text]
    return subprocess.run(words, cwd=place, capture_output=True, text=True)


def test_the_last_line_goes_on(place: Path, tmp_path: Path) -> None:
    paths = {"out": str(tmp_path / "out"), "state": str(tmp_path / "state")}
    stopped = script(STOPPED_BY.format("SIGINT") + CALL.format(**paths), place)
    assert stopped.returncode == 1
    said, last = stopped.stderr.splitlines()[-2:]
    assert said == "resumerge.errors.Interrupted: Stopped by SIGINT; finished work is committed"
    assert last.startswith("To resume: resumerge.resume(")
    again = script(f"import resumerge\n{last.removeprefix('To resume: ')}", place)
    assert again.returncode == 0, again.stderr
    assert shards_of(tmp_path / "out") == shards_of(place / "done")


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_who_catches_it_has_the_code_of_the_command(
    signal: str, code: int, place: Path, tmp_path: Path
) -> None:
    paths = {"out": str(tmp_path / "out"), "state": str(tmp_path / "state")}
    stopped = script(STOPPED_BY.format(signal) + HANDLED.format(**paths), place)
    assert stopped.returncode == code
    told = f"Stopped by {signal}; finished work is committed\nTo resume: "
    assert stopped.stdout.startswith(told)
    assert not stopped.stderr


@pytest.mark.cold_start
@pytest.mark.parametrize("imported", ["click", "resumerge.engine.lifecycle.session"])
def test_ctrl_c_while_the_command_is_imported_is_quiet(imported: str, place: Path) -> None:
    before = f"""
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {imported!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["resumerge", "run", "linear.yaml", "never", "--no-supervise"]
from resumerge.__main__ import main
main()
"""
    stopped = script(before, place)
    assert stopped.returncode == 130
    assert "Traceback" not in stopped.stderr
    assert imported != "click" or not stopped.stderr
