"""The memory of this machine, and the limits of cgroups (v1 and v2)."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from resumerge.host.system import LINUX, MACOS, kernel_file
from resumerge.sizes import show_size

MACHINE = "the machine"
_UNLIMITED = 1 << 60
_SHORT = 0.1
"""The share of the machine's memory below which the kernel pushes cgroups to their soft limits."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A measurement of memory.

    Documents have `total`, `available` and `bound` by these names (`host/host.py`), and a `Memory`
    is made of them again: a new field needs a default.

    Args:
        total: bytes of the machine's memory, or of the smallest cgroup limit.
        available: bytes that can be taken without swapping or being killed. Page cache counts as
            available where it can be dropped at once: it is neither dirty nor mapped.
        bound: the machine, or the name of the cgroup, with the least available memory.
        stalled: the share of the time since the measurement before in which every task that could
            have run waited for memory; 0 where the kernel does not say (PSI).
    """

    total: int
    available: int
    bound: str = MACHINE
    stalled: float = 0.0

    def __str__(self) -> str:
        return f"{self.bound} has {show_size(self.available)} of {show_size(self.total)} available"


@dataclass(frozen=True)
class _Files:
    """The names of files and fields in one version of cgroups."""

    used: str
    hard: tuple[str, ...]
    soft: str
    cached: tuple[str, ...]
    busy: tuple[str, ...]


_V1 = _Files(
    used="memory.usage_in_bytes",
    hard=("memory.limit_in_bytes",),
    soft="memory.soft_limit_in_bytes",
    cached=("total_inactive_file", "total_active_file"),
    busy=("total_mapped_file", "total_dirty", "total_writeback"),
)
_V2 = _Files(
    used="memory.current",
    hard=("memory.max", "memory.high"),  # above `high` the kernel slows a process to a crawl
    soft="",
    cached=("inactive_file", "active_file"),
    busy=("file_mapped", "file_dirty", "file_writeback"),
)
_ABOVE = "hierarchical_memory_limit"
"""The field of a v1 `memory.stat` with the smallest limit of all cgroups above, even out of sight.
"""


@dataclass(frozen=True)
class Cgroup:
    """A memory cgroup.

    Args:
        folder: its folder in the mounted hierarchy.
        files: the names of its files.
        own: whether the process itself is in this cgroup, not only in one below it.
    """

    folder: Path
    files: _Files
    own: bool

    def measure(self, *, soft: bool) -> tuple[int, int] | None:
        """Return (limit, available) in bytes; None where nothing limits it.

        Args:
            soft: whether the soft limit holds too.
        """
        names = [*self.files.hard, *([self.files.soft] if soft and self.files.soft else [])]
        limits = [limit for name in names if (limit := _number(self.folder / name)) is not None]
        limit = min(limits, default=_UNLIMITED)
        if limit >= _UNLIMITED and not self.own:
            return None
        stat = _fields(self.folder / "memory.stat")
        limit = min(limit, stat.get(_ABOVE, _UNLIMITED))
        used = _number(self.folder / self.files.used)
        if limit >= _UNLIMITED or used is None:
            return None
        cache = sum(stat.get(name, 0) for name in self.files.cached)
        cache -= sum(stat.get(name, 0) for name in self.files.busy)
        return limit, max(0, limit - used + max(0, cache))


class MemoryGauge:
    """A gauge that measures again and again; the cgroups are looked for once."""

    def __init__(self) -> None:
        self._groups = cgroups()
        own = [group.folder / "memory.pressure" for group in self._groups[:1]]
        pressure = [*own, kernel_file("/proc/pressure/memory")]
        self._pressure = next((path for path in pressure if path.exists()), None)
        self._stalls = self._stalled_until_now()

    def measure(self) -> Memory:
        """Measure the memory now."""
        (total, available), bound = _machine(), MACHINE
        short = available < total * _SHORT
        for group in self._groups:
            found = group.measure(soft=short)
            if found is None:
                continue
            total = min(total, found[0])
            if found[1] < available:
                available, bound = found[1], f"the cgroup {group.folder.name}"
        before, self._stalls = self._stalls, self._stalled_until_now()
        seconds = max(self._stalls[0] - before[0], 1e-3)
        stalled = min(1.0, (self._stalls[1] - before[1]) / seconds)
        return Memory(total=total, available=available, bound=bound, stalled=stalled)

    def _stalled_until_now(self) -> tuple[float, float]:
        """Return (now, seconds since boot in which everything waited for memory)."""
        try:
            text = self._pressure.read_text() if self._pressure else ""
        except OSError:
            text = ""
        _, _, full = text.partition("\nfull ")
        _, _, total = full.partition("total=")
        return time.monotonic(), int(total) / 1e6 if total.strip().isdigit() else 0.0


def measure_memory() -> Memory:
    """Measure the memory once."""
    return MemoryGauge().measure()


def address_space_limit() -> int | None:
    """Return the bytes of address space that this process may have; None for no ``ulimit -v``."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def rss() -> int:
    """Return the bytes of RSS that this process has."""
    try:
        return int(kernel_file("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        if LINUX:  # without /proc: the largest that it had
            return _peak_by_getrusage()
        return _rss_now(os.getpid())


def peak_rss_of(pid: int | str) -> int:
    """Return the largest RSS that a live process had, in bytes; 0 where the system does not say.

    Elsewhere than on Linux it is what the process has now.
    """
    try:
        for line in kernel_file(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0 if LINUX else _rss_now(pid)


def peak_rss() -> int:
    """Return the largest RSS that this process had, in bytes.

    The source is VmHWM where there is one: `getrusage` would count what the parent had when it
    forked.
    """
    return (LINUX and peak_rss_of("self")) or _peak_by_getrusage()


def _rss_now(pid: int | str) -> int:
    """Return the RSS of a process in bytes, by psutil; 0 where it is dead."""
    import psutil

    try:
        return int(psutil.Process(int(pid)).memory_info().rss)
    except psutil.Error:
        return 0


def _peak_by_getrusage() -> int:
    """Return the largest RSS of this process in bytes. getrusage(2) has KiB, but on macOS bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if MACOS else 1024)


def cgroups(pid: int | str = "self") -> list[Cgroup]:
    """Return the memory cgroups of a process, from its own up to the topmost in sight."""
    try:
        memberships = kernel_file(f"/proc/{pid}/cgroup").read_text().splitlines()
        mounts = kernel_file("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    groups: list[Cgroup] = []
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, files = _mounted(mounts, "cgroup2", ""), _V2
        elif "memory" in controllers.split(","):
            root, files = _mounted(mounts, "cgroup", "memory"), _V1
        else:
            continue
        if root is None:
            continue
        # In a container its own cgroup may be mounted as the root, or the path lead out of sight.
        inside = Path(path).relative_to(root[0]) if Path(path).is_relative_to(root[0]) else Path()
        own = folder = root[1] / inside
        while folder != root[1].parent:
            if (folder / files.used).exists():
                groups.append(Cgroup(folder, files, folder == own))
            folder = folder.parent
    return groups


def _mounted(mounts: list[str], kind: str, controller: str) -> tuple[Path, Path] | None:
    """Return (the cgroup that is mounted, where) of a hierarchy; see proc(5), mountinfo."""
    for line in mounts:
        left, _, right = line.partition(" - ")
        root, place = left.split()[3:5]
        filesystem, _, options = right.split(" ", 2)
        if filesystem == kind and (not controller or controller in options.strip().split(",")):
            return Path(root), kernel_file(place)
    return None


def _machine() -> tuple[int, int]:
    """Return (bytes of memory that the machine has, bytes available).

    Linux says so itself: psutil, for the other systems, takes longer to import than a plan to make.
    """
    found = _sizes(kernel_file("/proc/meminfo"))
    if "MemAvailable" in found:
        return found["MemTotal"], min(found["MemAvailable"], found["MemTotal"])
    folder = kernel_file("/sys/devices/system/node")
    if nodes := [_sizes(path) for path in folder.glob("node*/meminfo")]:  # without /proc
        return sum(node["MemTotal"] for node in nodes), sum(map(_droppable, nodes))
    if LINUX:  # without /sys, too: what is free, without the page cache
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page
    import psutil

    machine = psutil.virtual_memory()
    return machine.total, machine.available


def _droppable(node: dict[str, int]) -> int:
    """Return the bytes of a NUMA node that are free, or page cache that can be dropped at once."""
    cached = node["Active(file)"] + node["Inactive(file)"]
    busy = node["Mapped"] + node["Dirty"] + node["Writeback"]
    return node["MemFree"] + max(0, cached - busy)


def _sizes(meminfo: Path) -> dict[str, int]:
    """Return the sizes in a file meminfo, in bytes: of the machine, or of a NUMA node."""
    lines = (line.partition(":") for line in _lines(meminfo))
    return {name.split()[-1]: int(rest.split()[0]) << 10 for name, _, rest in lines}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return _UNLIMITED if text == "max" else int(text)


def _fields(path: Path) -> dict[str, int]:
    """Return the lines of a file, each a name and a number."""
    return {name: int(number) for name, number in (line.split() for line in _lines(path))}


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; none where it does not exist."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
