"""How much memory there is: the machine's, and what cgroups (v1 and v2) leave of it."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

_UNLIMITED = 1 << 60
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


@dataclass(frozen=True)
class Memory:
    """A measurement, in bytes.

    Args:
        total: the machine's memory, or the smallest cgroup limit.
        available: what can be taken without swapping or being killed; page cache that can be
            dropped counts as available.
    """

    total: int
    available: int


def measure_memory() -> Memory:
    """Measure now."""
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    for folder, names in cgroup_folders():
        limit = _number(folder / names[0])
        used = _number(folder / names[1])
        if limit is None or used is None or limit >= _UNLIMITED:
            continue
        cache = _stat(folder / "memory.stat", names[2])
        total = min(total, limit)
        available = min(available, max(0, limit - used + cache))
    return Memory(total, available)


def peak_rss() -> int:
    """The largest RSS that this process had, in bytes.

    From VmHWM where there is one: `getrusage` would count what the parent had when it forked.
    """
    found = _stat(Path("/proc/self/status"), "VmHWM:")
    return found * 1024 or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cgroup_folders() -> list[tuple[Path, tuple[str, str, str]]]:
    """The memory cgroups of this process, from its own up to the root, with their file names."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[Path, tuple[str, str, str]]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = Path("/sys/fs/cgroup"), _V2
        elif "memory" in controllers.split(","):
            root, names = Path("/sys/fs/cgroup/memory"), _V1
        else:
            continue
        folder = root / path.lstrip("/")
        for parent in (folder, *folder.parents):
            if parent == root.parent:
                break
            if (parent / names[0]).exists():
                found.append((parent, names))
    return found


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return _UNLIMITED if text == "max" else int(text)


def _stat(path: Path, name: str) -> int:
    """The number on the line that begins with a name; 0 where there is none."""
    try:
        for line in path.read_text().splitlines():
            fields = line.split()
            if fields and fields[0] == name:
                return int(fields[1])
    except OSError:
        pass
    return 0
