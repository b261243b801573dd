"""Memory cgroups of either version that tests make, with processes in them."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_until

from resumerge.host.memory import cgroups

MB = 10**6


@dataclass(frozen=True)
class TestCgroup:
    """A cgroup with a limit."""

    __test__ = False

    folder: Path
    limit_file: str

    def limit(self, nbytes: int) -> None:
        (self.folder / self.limit_file).write_text(str(nbytes))

    def start(self, command: Sequence[str], **options: object) -> subprocess.Popen[str]:
        """Start a command in the cgroup: a shell enters the cgroup and then becomes the command."""
        script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            ["sh", "-c", script, str(self.folder), *command], text=True, **options
        )

    @property
    def kills(self) -> int:
        """The number of its processes that the kernel killed for memory."""
        for name in ("memory.oom_control", "memory.events"):
            path = self.folder / name
            if path.exists():
                for line in path.read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        raise AssertionError(f"{self.folder} does not say how many were killed")

    @property
    def used(self) -> int:
        for name in ("memory.usage_in_bytes", "memory.current"):
            path = self.folder / name
            if path.exists():
                return int(path.read_text())
        raise AssertionError(f"{self.folder} does not say what is used")


@contextmanager
def memory_cgroup(nbytes: int) -> Iterator[TestCgroup]:
    """Yield a cgroup of that many bytes, below this process's own, and remove it at the end.

    Raises:
        PermissionError: this process cannot make one on this machine.
    """
    own = [group for group in cgroups() if group.own]
    if not own:
        raise PermissionError("this process is in no memory cgroup that can be seen")
    parent, files = own[0].folder, own[0].files
    folder = parent / f"resumerge-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        raise PermissionError(f"no cgroup can be made in {parent}: {error}") from error
    try:
        name = files.hard[0]
        if not (folder / name).exists():
            raise PermissionError(f"{parent} gives its children no {name}")
        group = TestCgroup(folder, name)
        try:
            group.limit(nbytes)
        except OSError as error:
            raise PermissionError(f"no limit can be set in {folder}: {error}") from error
        yield group
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Kill the processes of a cgroup, and remove it when they have ended."""
    for pid in (folder / "cgroup.procs").read_text().split():
        os.kill(int(pid), 9)
    wait_until(lambda: _is_removed(folder))


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def drop_cache(folder: Path) -> None:
    """Drop the cached pages of all files in a folder: they then count where they are read next."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
