"""Promise: what only some systems have is used where it is, and nobody misses it elsewhere."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from resumerge.host import memory, system
from resumerge.host.memory import MemoryGauge, cgroups, peak_rss, peak_rss_of, rss
from resumerge.host.processes import clock
from resumerge.host.system import VARIABLE, kernel_file, libc, offered, sync

MB = 10**6
FULL = 51  # fcntl.h of macOS


@pytest.fixture
def posix_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the program run as on a system that has POSIX alone."""
    monkeypatch.setattr(system, "POSIX_ONLY", True)
    monkeypatch.setattr(system, "_KERNEL", Path(os.devnull))
    monkeypatch.setattr(memory, "LINUX", False)


@pytest.mark.parametrize("said, is_on", [("", False), ("0", False), ("1", True), ("yes", True)])
def test_a_variable_turns_all_of_it_off(said: str, is_on: bool) -> None:
    program = "from resumerge.host.system import *; print(POSIX_ONLY, LINUX, kernel_file('/proc'))"
    environment = {**os.environ, VARIABLE: said}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    expected = ("True", "False", "/dev/null/proc") if is_on else ("False", "True", "/proc")
    assert tuple(done.stdout.split()) == expected


@pytest.mark.usefixtures("posix_only")
def test_nothing_is_offered_and_no_file_of_the_kernel_is_there() -> None:
    assert offered(os, "fdatasync") is None and libc("prctl") is None
    with pytest.raises(OSError):
        kernel_file("/proc/self/stat").read_text()
    assert not kernel_file("/proc/self").exists()
    assert list(kernel_file("/proc/self/task").glob("*")) == []
    assert cgroups() == []


@pytest.mark.usefixtures("posix_only")
def test_memory_is_what_psutil_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = SimpleNamespace(total=8000 * MB, available=3000 * MB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: said)
    gauge = MemoryGauge()
    assert (gauge.measure().total, gauge.measure().available) == (8000 * MB, 3000 * MB)
    said.available = 100 * MB
    assert gauge.measure().available == 100 * MB
    assert gauge.measure().stalled == 0, "nothing says it"


@pytest.mark.usefixtures("posix_only")
def test_rss_of_this_process_and_of_others() -> None:
    assert rss() == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    program = "print('ready', flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, "-c", program], **pipes)
    child.stdout.readline()  # a process that is being started has hardly any memory
    assert peak_rss_of(child.pid) > MB
    child.communicate(b"\n")
    assert peak_rss_of(child.pid) == 0, "it is dead"


@pytest.mark.parametrize("is_macos, unit", [(False, 1024), (True, 1)])
@pytest.mark.usefixtures("posix_only")
def test_the_peak_has_the_systems_unit(
    monkeypatch: pytest.MonkeyPatch, is_macos: bool, unit: int
) -> None:
    monkeypatch.setattr(memory, "MACOS", is_macos)
    usage = SimpleNamespace(ru_maxrss=70_000)
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    assert peak_rss() == 70_000 * unit


@pytest.mark.usefixtures("posix_only")
def test_the_clock_goes_on() -> None:
    before = clock()
    time.sleep(0.01)
    assert 0 < clock() - before < 60


# Durable files


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the calls that a sync makes, in order."""
    found: list[str] = []

    def watch(owner: Any, name: str) -> None:
        monkeypatch.setattr(owner, name, lambda fd, *rest: found.append(name), raising=False)

    watch(os, "fsync")
    watch(os, "fdatasync")
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    return found


def test_a_sync_of_data_leaves_the_times(asked: list[str]) -> None:
    sync(7)
    sync(7, data_only=True)
    assert asked == ["fsync", "fdatasync"]


@pytest.mark.usefixtures("posix_only")
def test_posix_has_one_sync(asked: list[str]) -> None:
    sync(7, data_only=True)
    assert asked == ["fsync"]


@pytest.mark.parametrize("data_only", [False, True])
@pytest.mark.parametrize("number", [0, errno.ENOTSUP, errno.ENOTTY, errno.EIO])
def test_macos_empties_the_disks_cache_where_it_can(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], number: int, data_only: bool
) -> None:
    """A network filesystem may lack this call and gets an fsync; an error of the disk is raised."""
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL, raising=False)
    monkeypatch.delattr(os, "fdatasync")

    def full(fd: int, command: int) -> int:
        assert (fd, command) == (7, FULL)
        asked.append("full")
        if number:
            raise OSError(number, os.strerror(number))
        return 0

    monkeypatch.setattr(fcntl, "fcntl", full)
    if number == errno.EIO:
        with pytest.raises(OSError):
            sync(7, data_only=data_only)
    else:
        sync(7, data_only=data_only)
    assert asked == ["full", *(["fsync"] if number in (errno.ENOTSUP, errno.ENOTTY) else [])]
