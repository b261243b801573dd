"""Promise: one process works on a run, and on an output; a dead process does not block it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from privileges import drop_privileges
from waiting import HANGS_SECONDS

from resumerge.engine.resources import lock
from resumerge.engine.resources.allocation_errors import is_out_of_memory, out_of_memory
from resumerge.engine.resources.lock import (
    LOCK_FILE,
    is_abandoned,
    lock_holder,
    output_lock,
    run_lock,
)
from resumerge.engine.resources.resource_errors import (
    as_resumable,
    is_full,
    resumable_disk_errors,
)
from resumerge.errors import InputError, Resumable
from resumerge.host.machine import hostname
from resumerge.output_path import OutputPath

pytestmark = pytest.mark.cold_start

HOLDS = """
import sys, time
from pathlib import Path
from resumerge.engine.resources import lock
from resumerge.output_path import OutputPath
kind = OutputPath if sys.argv[1] == "output_lock" else Path
with getattr(lock, sys.argv[1])(kind(Path(sys.argv[2])), *sys.argv[3:]):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def another(kind: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that holds a lock."""
    command = [sys.executable, "-c", HOLDS, kind, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_process_is_refused_and_told_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append)
    with another("run_lock", tmp_path, "merged-1") as process:
        monkeypatch.setattr(lock, "time", clock)
        with pytest.raises(InputError) as refused, run_lock(tmp_path, "merged-1"):
            pass
        assert 0.2 < sum(waited) < 5, "it may be about to end"
        assert refused.value.problems[0].found == (
            f"pid {process.pid} on {hostname()} holds the lock of run merged-1"
        )
        assert lock_holder(tmp_path) == {"pid": process.pid, "host": hostname()}
        assert not is_abandoned(tmp_path)
    assert lock_holder(tmp_path) is None, "the kernel released it"
    with run_lock(tmp_path, "merged-1"):
        assert lock_holder(tmp_path) == {"pid": os.getpid(), "host": hostname()}
    assert (tmp_path / LOCK_FILE).read_bytes() == b""


def test_who_looks_takes_nothing(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    assert not list(tmp_path.iterdir())
    with run_lock(tmp_path, "run"):
        for _ in range(3):
            assert lock_holder(tmp_path)
    assert lock_holder(tmp_path) is None


def test_who_looks_and_stands_still_meanwhile_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    looking = os.open(tmp_path / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_SH)

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if sum(waited) > 5:
            fcntl.flock(looking, fcntl.LOCK_UN)

    monkeypatch.setattr(lock, "time", SimpleNamespace(monotonic=lambda: sum(waited), sleep=sleep))
    with run_lock(tmp_path, "run"):
        assert sum(waited) > 5
    os.close(looking)


def test_what_a_killed_process_left_in_a_lock_is_not_told_of_the_next_one(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text(json.dumps({"pid": 1, "host": "a long name" * 20}))
    with run_lock(tmp_path, "run"):
        assert lock_holder(tmp_path) == {"pid": os.getpid(), "host": hostname()}


def test_a_lock_that_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK_FILE)
    found: list[object] = []
    looking = threading.Thread(target=lambda: found.append(lock_holder(tmp_path)), daemon=True)
    looking.start()
    looking.join(HANGS_SECONDS)
    assert found == [None]


def test_every_user_may_see_who_holds_a_lock(tmp_path: Path) -> None:
    with run_lock(tmp_path, "run"):
        (tmp_path / LOCK_FILE).chmod(0o444)
        child = os.fork()
        if child == 0:
            drop_privileges()
            os._exit(0 if lock_holder(tmp_path) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_lock_whose_words_are_lost_is_held_all_the_same(tmp_path: Path) -> None:
    with run_lock(tmp_path, "run"):
        for text in ("", "[1]", "no JSON"):
            (tmp_path / LOCK_FILE).write_text(text)
            assert lock_holder(tmp_path) == {}
        with (
            pytest.raises(InputError, match="pid \\? on \\? holds the lock of run"),
            run_lock(tmp_path, "run"),
        ):
            pass


@pytest.mark.parametrize(("age", "abandoned"), [(0, False), (50, False), (70, True)])
def test_an_empty_folder_is_abandoned_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, abandoned: bool
) -> None:
    made = tmp_path.stat().st_mtime
    monkeypatch.setattr(lock, "time", SimpleNamespace(time=lambda: made + age))
    assert is_abandoned(tmp_path) is abandoned


def test_one_with_files_is_abandoned_unless_somebody_works_on_it(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"")
    assert is_abandoned(tmp_path)
    with another("run_lock", tmp_path, "run"):
        assert not is_abandoned(tmp_path)
    assert is_abandoned(tmp_path)


def test_one_process_writes_to_an_output_folder(tmp_path: Path) -> None:
    with (
        another("output_lock", tmp_path),
        pytest.raises(InputError, match="Another process is writing to this output"),
        output_lock(OutputPath(tmp_path)),
    ):
        pass
    with output_lock(OutputPath(tmp_path)):
        assert not list(tmp_path.iterdir())
    with output_lock(OutputPath(tmp_path)):
        pass


def test_one_process_writes_to_an_output_of_one_file_and_others_to_other_files(
    tmp_path: Path,
) -> None:
    """The lock's file stays only if its owner was killed, and does not block another process."""
    mine, other = tmp_path / "mine.safetensors", OutputPath(tmp_path / "other.safetensors")
    with another("output_lock", mine):
        with output_lock(other):
            pass
        with (
            pytest.raises(InputError, match="Another process is writing to this output"),
            output_lock(OutputPath(mine)),
        ):
            pass
        assert [path.name for path in tmp_path.iterdir()] == [".mine.safetensors.lock"]
    with output_lock(OutputPath(mine)):
        pass
    assert not list(tmp_path.iterdir())


def test_a_lock_that_its_owner_removes_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opened the file before its removal has a lock that no other can find."""
    out, flock = OutputPath(tmp_path / "mine.safetensors"), fcntl.flock
    removed = []

    def removing(fd: int, operation: int) -> None:
        flock(fd, operation)
        if not removed:
            removed.append((tmp_path / ".mine.safetensors.lock").unlink())

    monkeypatch.setattr("fcntl.flock", removing)
    with output_lock(out):
        assert (tmp_path / ".mine.safetensors.lock").exists()
    assert removed


# What stops a run that can be resumed


@pytest.mark.parametrize(
    ("error", "reason", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full", True),
        (OSError(errno.EDQUOT, "Quota exceeded"), "disk_full", True),
        (sqlite3.OperationalError("database or disk is full"), "disk_full", False),
        (sqlite3.OperationalError("disk I/O error"), "io", False),
        (OSError(errno.EIO, "Input/output error"), "io", False),
    ],
)
def test_what_a_disk_says(error: Exception, reason: str, full: bool) -> None:
    assert is_full(error) is full
    found = as_resumable(error, "try again")
    assert (found.reason, found.exit_code) == (reason, 75)
    assert str(error) in str(found) and "try again" in str(found)
    with pytest.raises(Resumable) as raised, resumable_disk_errors():
        raise error
    assert raised.value.reason == reason and raised.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError("a bug"), sqlite3.DatabaseError("malformed")])
def test_other_errors_are_none_of_the_disks(error: Exception) -> None:
    with pytest.raises(type(error)), resumable_disk_errors():
        raise error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (MemoryError("Unable to allocate 1 EiB"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("can't start new thread"), True),
        (ImportError("libx.so: failed to map segment from shared object"), True),
        (ImportError("libx.so: Cannot allocate memory"), True),
        (ImportError("libx.so: no such file"), False),
        (KeyError("cannot allocate memory"), False),
        (RuntimeError("shapes differ"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_an_allocation_says(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
    found = out_of_memory(error)
    assert (found.reason, found.exit_code) == ("memory", 75)
    assert (str(error) or type(error).__name__) in str(found)
