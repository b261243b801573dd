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
"""A share of the machine's memory. If less is available, the kernel enforces cgroups' soft limits.
"""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A measurement of memory.

    Documents contain `total`, `available` and `bound` under these names (`host/host.py`). A
    `Memory` is also constructed from a document, so a new field needs a default.

    Args:
        total: the bytes of the machine's memory, or the smallest cgroup limit.
        available: the bytes that can be allocated without swapping or an OOM kill. Page cache
            counts as available if it can be dropped at once, that is, if it is clean and unmapped.
        bound: the machine, or the name of the cgroup, with the least available memory.
        stalled: the share of the time since the last measurement in which all runnable tasks waited
            for memory; 0 if the kernel does not report it (PSI).
    """

    total: int
    available: int
    bound: str = MACHINE
    stalled: float = 0.0

    def __str__(self) -> str:
        return f"{self.bound} has {show_size(self.available)} of {show_size(self.total)} available"


@dataclass(frozen=True)
class _Files:
    """The names of the files and fields that are read in one version of cgroups."""

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
    hard=("memory.max", "memory.high"),  # above `high`, the kernel throttles a process heavily
    soft="",
    cached=("inactive_file", "active_file"),
    busy=("file_mapped", "file_dirty", "file_writeback"),
)
_ABOVE = "hierarchical_memory_limit"
"""The field of a v1 `memory.stat` with the smallest limit of all cgroups above, visible or not."""


@dataclass(frozen=True)
class Cgroup:
    """A memory cgroup.

    Args:
        folder: the cgroup's folder in the mounted hierarchy.
        files: the names of the cgroup's files, which depend on the version of cgroups.
        own: whether the process is in this cgroup itself, not only in one below it.
    """

    folder: Path
    files: _Files
    own: bool

    def measure(self, *, soft: bool) -> tuple[int, int] | None:
        """Return (limit, available) in bytes; None if the cgroup has no limit, or is unreadable.

        Args:
            soft: whether the soft limit counts as a limit.
        """
        names = [*self.files.hard, *([self.files.soft] if soft and self.files.soft else [])]
        limits = [limit for name in names if (limit := _number(self.folder / name)) is not None]
        limit = min(limits, default=_UNLIMITED)
        if limit >= _UNLIMITED and not self.own:
            return None
        stat_fields = _fields(self.folder / "memory.stat")
        limit = min(limit, stat_fields.get(_ABOVE, _UNLIMITED))
        used_bytes = _number(self.folder / self.files.used)
        if limit >= _UNLIMITED or used_bytes is None:
            return None
        cache_bytes = sum(stat_fields.get(name, 0) for name in self.files.cached)
        cache_bytes -= sum(stat_fields.get(name, 0) for name in self.files.busy)
        return limit, max(0, limit - used_bytes + max(0, cache_bytes))


class MemoryGauge:
    """A gauge for repeated measurements. It looks up the cgroups only once."""

    def __init__(self) -> None:
        self._groups = cgroups()
        own_files = [cgroup.folder / "memory.pressure" for cgroup in self._groups[:1]]
        pressure_files = [*own_files, kernel_file("/proc/pressure/memory")]
        self._pressure = next((path for path in pressure_files if path.exists()), None)
        self._stalls = self._stalled_until_now()

    def measure(self) -> Memory:
        """Return the present memory of the machine and the cgroups."""
        (total, available_bytes), bound = _machine(), MACHINE
        is_short = available_bytes < total * _SHORT
        for group in self._groups:
            limit_and_available = group.measure(soft=is_short)
            if limit_and_available is None:
                continue
            total = min(total, limit_and_available[0])
            if limit_and_available[1] < available_bytes:
                available_bytes, bound = limit_and_available[1], f"the cgroup {group.folder.name}"
        previous_stalls, self._stalls = self._stalls, self._stalled_until_now()
        seconds = max(self._stalls[0] - previous_stalls[0], 1e-3)
        stalled_share = min(1.0, (self._stalls[1] - previous_stalls[1]) / seconds)
        return Memory(total=total, available=available_bytes, bound=bound, stalled=stalled_share)

    def _stalled_until_now(self) -> tuple[float, float]:
        """Return (monotonic time, total seconds in which all tasks waited for memory)."""
        try:
            text = self._pressure.read_text() if self._pressure else ""
        except OSError:
            text = ""
        _, _, full_line = text.partition("\nfull ")
        _, _, total = full_line.partition("total=")
        return time.monotonic(), int(total) / 1e6 if total.strip().isdigit() else 0.0


def measure_memory() -> Memory:
    """Return one measurement of memory. Its `stalled` has no meaning."""
    return MemoryGauge().measure()


def address_space_limit() -> int | None:
    """Return the limit of this process's address space (``ulimit -v``) in bytes, if it has one."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def rss() -> int:
    """Return the RSS of this process in bytes; on Linux without /proc, the largest RSS it had."""
    try:
        return int(kernel_file("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        if LINUX:  # without /proc
            return _peak_by_getrusage()
        return _rss_now(os.getpid())


def peak_rss_of(pid: int | str) -> int:
    """Return the largest RSS that a live process had, in bytes; 0 if it cannot be read.

    On systems other than Linux, return the present RSS.
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

    On Linux, this is VmHWM of /proc if possible, because `getrusage` includes the RSS of the parent
    process at the fork.
    """
    return (LINUX and peak_rss_of("self")) or _peak_by_getrusage()


def _rss_now(pid: int | str) -> int:
    """Return the RSS of a process in bytes, by psutil; 0 if the process is dead."""
    import psutil

    try:
        return int(psutil.Process(int(pid)).memory_info().rss)
    except psutil.Error:
        return 0


def _peak_by_getrusage() -> int:
    """Return the largest RSS of this process in bytes. getrusage(2) has KiB, on macOS bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if MACOS else 1024)


def cgroups(pid: int | str = "self") -> list[Cgroup]:
    """Return the memory cgroups of a process, from its own cgroup to the topmost visible one."""
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
        # In a container, the container's cgroup may be mounted as the root. Then the path does not
        # exist below the root.
        path_below_root = (
            Path(path).relative_to(root[0]) if Path(path).is_relative_to(root[0]) else Path()
        )
        own_folder = folder = root[1] / path_below_root
        while folder != root[1].parent:
            if (folder / files.used).exists():
                groups.append(Cgroup(folder, files, folder == own_folder))
            folder = folder.parent
    return groups


def _mounted(mounts: list[str], kind: str, controller: str) -> tuple[Path, Path] | None:
    """Return (cgroup, mount point) of a mounted hierarchy; None without one. See proc(5).

    Args:
        mounts: the lines of mountinfo.
        kind: the type of the filesystem: ``cgroup2`` or ``cgroup``.
        controller: the controller that the mount's options must name; empty for any.
    """
    for line in mounts:
        mount_fields, _, filesystem_fields = line.partition(" - ")
        root, mount_point = mount_fields.split()[3:5]
        filesystem, _, options = filesystem_fields.split(" ", 2)
        if filesystem == kind and (not controller or controller in options.strip().split(",")):
            return Path(root), kernel_file(mount_point)
    return None


def _machine() -> tuple[int, int]:
    """Return (total bytes, available bytes) of the machine's memory.

    On Linux, the kernel's files are read. psutil is used only on other systems, because importing
    it takes longer than making a plan.
    """
    meminfo = _sizes(kernel_file("/proc/meminfo"))
    if "MemAvailable" in meminfo:
        return meminfo["MemTotal"], min(meminfo["MemAvailable"], meminfo["MemTotal"])
    folder = kernel_file("/sys/devices/system/node")
    if nodes := [_sizes(path) for path in folder.glob("node*/meminfo")]:  # without /proc
        return sum(node["MemTotal"] for node in nodes), sum(map(_droppable, nodes))
    if LINUX:  # without /proc and /sys: free memory, without the page cache
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_PHYS_PAGES") * page_bytes, os.sysconf("SC_AVPHYS_PAGES") * page_bytes
    import psutil

    machine = psutil.virtual_memory()
    return machine.total, machine.available


def _droppable(node: dict[str, int]) -> int:
    """Return the bytes of a NUMA node that are free or droppable page cache."""
    cached = node["Active(file)"] + node["Inactive(file)"]
    busy = node["Mapped"] + node["Dirty"] + node["Writeback"]
    return node["MemFree"] + max(0, cached - busy)


def _sizes(meminfo: Path) -> dict[str, int]:
    """Return the sizes in bytes in a meminfo file, by name, of the machine or of a NUMA node."""
    lines = (line.partition(":") for line in _lines(meminfo))
    return {name.split()[-1]: int(rest.split()[0]) << 10 for name, _, rest in lines}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return _UNLIMITED if text == "max" else int(text)


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers in a file whose lines are a name and a number, by name."""
    return {name: int(number) for name, number in (line.split() for line in _lines(path))}


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; empty if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
