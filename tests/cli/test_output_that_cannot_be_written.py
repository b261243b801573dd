"""Promise: no log, terminal or pipe that takes no more output stops a merge or changes its code."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import DISK_FULL, STOPPED_BY
from merging import shards_of

KILL_ONE = """
import os, signal
from resumerge.storage import Storage
from resumerge.supervisor.worker import Worker
whole, started = Storage.write, Worker.start.__func__
workers = []
def start(cls, work, close=()):
    workers.append(1)
    return started(cls, work, close)
def write(self, fd, data, offset):
    if offset > 10_000 and len(workers) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, fd, data, offset)
Storage.write, Worker.start = write, classmethod(start)
"""
"""Kills the first worker, so that the supervisor has something to say."""

BAR = """
import rich.console
rich.console.Console.is_terminal = True
"""


@contextmanager
def closed() -> Iterator[None]:
    yield None


@contextmanager
def full() -> Iterator[int]:
    fd = os.open("/dev/full", os.O_WRONLY)
    yield fd
    os.close(fd)


@contextmanager
def unread() -> Iterator[int]:
    """Yield a pipe whose reader is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@contextmanager
def hung_up() -> Iterator[int]:
    """Yield a terminal that was closed: a write fails with EIO."""
    master, slave = pty.openpty()
    os.close(master)
    yield slave
    os.close(slave)


@contextmanager
def stuffed() -> Iterator[int]:
    """Yield a full, non-blocking pipe that is never read: a write fails with EAGAIN."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"x" * 4096)
    yield writing
    os.close(reading)
    os.close(writing)


def run(*words: object, cwd: Path, before: str = "", stdout: int | None, stderr: int | None) -> int:
    """Return the exit code of a command with these descriptors; None closes one."""

    def close() -> None:
        for number, fd in ((1, stdout), (2, stderr)):
            if fd is None:
                os.close(number)

    program = f"{before}\nfrom resumerge.__main__ import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=cwd,
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
        preexec_fn=close if None in (stdout, stderr) else None,
    ).returncode


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        *((kind, ("run", "linear.yaml", "--json")) for kind in (closed, unread, hung_up, stuffed)),
        *((kind, ("run", "linear.yaml")) for kind in (closed, full)),
        (full, ("run", "linear.yaml", "--no-supervise", "--progress", "bar", "-vv")),
    ],
)
def test_a_merge_is_done(kind, words: tuple[str, ...], place: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out"
    state = ("--state-dir", tmp_path / "state")
    before = BAR if "bar" in words else KILL_ONE
    with kind() as fd:
        words = (*words[:2], str(out), *words[2:])
        assert run(*words, *state, cwd=place, before=before, stdout=fd, stderr=fd) == 0
    assert shards_of(out) == shards_of(place / "done")


@pytest.mark.parametrize("kind", [closed, full])
@pytest.mark.parametrize(
    ("before", "code", "option"),
    [
        (DISK_FULL, 75, "--json"),
        (STOPPED_BY.format("SIGTERM"), 143, "--no-supervise"),
        (STOPPED_BY.format("SIGINT"), 130, "--offline"),
    ],
)
def test_the_exit_code_is_the_merges(  # type: ignore[no-untyped-def]
    kind, before: str, code: int, option: str, place: Path, tmp_path: Path
) -> None:
    words = ("run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state", option)
    with kind() as fd:
        assert run(*words, cwd=place, before=before, stdout=fd, stderr=fd) == code


@pytest.mark.parametrize("kind", [closed, full])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status", "nothing"), 2),
        (("run", "--nonsense"), 2),
        (("run", "nowhere.yaml", "out"), 2),
        (("verify", "half"), 0),
        (("methods", "-vv"), 0),
    ],
)
def test_only_messages_are_lost(kind, words: tuple[str, ...], code: int, place: Path) -> None:  # type: ignore[no-untyped-def]
    with kind() as fd, Path(os.devnull).open("w") as nowhere:
        assert run(*words, cwd=place, stdout=nowhere.fileno(), stderr=fd) == code


def test_a_document_that_cannot_be_written_is_an_error_still(place: Path) -> None:
    with full() as fd:
        assert run("status", "--json", cwd=place, stdout=fd, stderr=fd) == 75


def test_no_file_gets_the_number_of_a_closed_stream(place: Path, tmp_path: Path) -> None:
    """A file that got the number of a closed stream would receive what the program prints."""
    before = """
import os
from resumerge.storage import Storage
whole = Storage.write
def write(self, fd, data, offset):
    assert fd > 2
    assert os.path.samefile(f"/proc/self/fd/1", "/dev/null")
    whole(self, fd, data, offset)
Storage.write = write
"""
    out = tmp_path / "out"
    words = ("run", "linear.yaml", out, "--state-dir", tmp_path / "state", "--no-supervise")
    assert run(*words, cwd=place, before=before, stdout=None, stderr=None) == 0
    assert shards_of(out) == shards_of(place / "done")


FROM_PYTHON = """
import resumerge
resumerge.run("linear.yaml", {out!r}, state_dir={state!r}, progress={progress!r})
"""


@pytest.mark.parametrize("progress", ["lines", "json"])
def test_a_merge_in_a_process_of_others_goes_on(progress: str, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = FROM_PYTHON.format(out=str(out), state=str(tmp_path / "state"), progress=progress)
    with full() as fd:
        subprocess.run([sys.executable, "-c", program], cwd=place, stdout=fd, stderr=fd)
    assert shards_of(out) == shards_of(place / "done")
