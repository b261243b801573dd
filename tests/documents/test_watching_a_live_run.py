"""--watch follows a run until it ends, and leaves at Ctrl-C without a trace."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from asking import start, status
from ledger_rows import change
from made_up_ledgers import make_ledger

from resumerge.engine.resources.lock import run_lock
from resumerge.ledger import Ledger


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make a folder whose `state` holds a run of one attempt that has not ended."""
    attempt = {"n": 1, "started": 0, "ended": 5, "bytes_committed": 10**6, "budget": 10**9}
    samples = [(float(t), 1, 10**8, 10**9, 10**9, 2**27, 10**5 * t) for t in range(5)]
    folder = make_ledger(tmp_path / "state", [attempt], samples, state="running")
    change(folder / "ledger.db", "UPDATE attempts SET ended = NULL")
    return tmp_path


@contextmanager
def alive(place: Path) -> Iterator[None]:
    """Yield while the run is locked, as by a process that works on it."""
    with run_lock(place / "state" / "made-up", "made-up"):
        yield


def end(place: Path) -> None:
    ledger = Ledger(place / "state" / "made-up" / "ledger.db")
    ledger.attempts.end(1, "done")
    ledger.set_state("done")
    ledger.close()


def test_json_is_a_document_a_line_until_the_run_ends(place: Path) -> None:
    with alive(place):
        process = start("status", "--watch", "--json", cwd=place, stdout=subprocess.PIPE)
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        second = json.loads(process.stdout.readline())
        end(place)
    rest = [json.loads(line) for line in process.stdout]
    assert process.wait() == 0
    assert [doc["runs"][0]["state"] for doc in (first, second)] == ["running", "running"]
    assert rest[-1]["runs"][0]["state"] == "done"
    assert rest[-1] == json.loads(status(place, "made-up", "--json"))


def test_json_leaves_cleanly_at_ctrl_c(place: Path) -> None:
    with alive(place):
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = start("status", "--watch", "--json", cwd=place, **pipe)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert all(json.loads(line)["runs"] for line in out.splitlines())


PATIENT = """
from resumerge.cli.main import main
from resumerge.ui.terminal import watch
watch.RESTART_SECONDS = 600.0
main()
"""
"""For a run whose next attempt may be late."""


def test_between_two_attempts_it_waits_a_while(place: Path) -> None:
    with alive(place):
        command = [sys.executable, "-c", PATIENT, "status", "--watch", "--json"]
        process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
    states = ["running"]
    while states[-1] == "running":
        states.append(json.loads(process.stdout.readline())["runs"][0]["state"])
    assert states[-1] == "interrupted"
    with alive(place):
        while states[-1] != "running":
            states.append(json.loads(process.stdout.readline())["runs"][0]["state"])
        end(place)
    assert json.loads(process.stdout.read().splitlines()[-1])["runs"][0]["state"] == "done"
    assert process.wait() == 0


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (50, 60)])
def test_a_terminal_is_drawn_live_and_given_back(place: Path, rows: int, columns: int) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    with alive(place):
        process = start(
            "status",
            "--watch",
            cwd=place,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color"},
        )
        os.close(theirs)
        seen = b""
        while seen.count(b"throughput") < 2:  # drawn, and drawn again
            seen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 4096):
                seen += more
        except OSError:  # the other side is closed
            pass
    os.close(ours)
    assert process.wait() == 0
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") > 0  # the cursor is back
    assert b"Traceback" not in seen
    assert b"Abort" not in seen


def test_q_leaves_and_the_terminal_is_as_before(place: Path) -> None:
    with alive(place):
        waits, goes = os.pipe()
        pid, ours = pty.fork()
        if pid == 0:  # whose terminal it is
            os.read(waits, 1)  # it changes the terminal, which is looked at before
            os.chdir(place)
            os.execv(sys.executable, [sys.executable, "-m", "resumerge", "status", "--watch"])
        ioctl(ours, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before, seen = termios.tcgetattr(ours), b""
        os.write(goes, b"x")
        while b"q or Ctrl-C leaves; the run goes on" not in seen:
            seen += os.read(ours, 4096)
        os.write(ours, b"xq")
        os.write(ours, b"q")
        while seen.count(b"\x1b[?25h") < 1:
            seen += os.read(ours, 4096)
        try:
            while more := os.read(ours, 4096):
                seen += more
        except OSError:  # it has ended
            pass
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert termios.tcgetattr(ours) == before
    assert b"Traceback" not in seen
    for descriptor in (ours, waits, goes):
        os.close(descriptor)


def test_without_a_terminal_the_picture_comes_once_at_the_end(place: Path) -> None:
    with alive(place):
        process = start("status", "--watch", cwd=place, stdout=subprocess.PIPE)
        time.sleep(1.5)
        end(place)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert out.count("throughput") == 1
    assert "\x1b" not in out


def test_a_run_that_is_over_is_shown_once(place: Path) -> None:
    assert len(status(place, "--watch", "--json").splitlines()) == 1
