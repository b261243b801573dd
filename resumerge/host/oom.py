"""Counts of processes that the kernel killed for lack of memory, and the budget after a kill."""

from __future__ import annotations

from pathlib import Path

from resumerge.host.memory import cgroups
from resumerge.host.system import kernel_file

_COUNTED_IN = ("memory.oom_control", "memory.events")
"""The files of a cgroup with counts, of v1 (only in the killed process's own group) and v2."""


def lowered_budget(budget: int, floor: int = 0) -> int:
    """Return the budget for the next worker after a budget was too large: half of it.

    Args:
        budget: bytes of the budget that was too large.
        floor: bytes below which not even one thread can work.
    """
    return min(budget, max(floor, budget // 2))


class OomKills:
    """The kernel's counts of OOM kills: in the cgroups of a process, and on the machine."""

    def __init__(self) -> None:
        self._before: dict[Path, int] = {}
        self.look("self")

    def look(self, pid: int | str) -> None:
        """Count from now on in the cgroups of a live process, which may have been moved."""
        files = [group.folder / name for group in cgroups(pid) for name in _COUNTED_IN]
        for file in (*files, kernel_file("/proc/vmstat")):
            if file not in self._before and (count := _kills(file)) is not None:
                self._before[file] = count

    def rose(self) -> bool:
        """Return whether the kernel killed a process since the last call.

        A kill elsewhere on the machine counts as well: a false alarm costs a smaller budget, a
        missed one would cost the next worker's life.
        """
        rose = False
        for file, before in self._before.items():
            count = _kills(file) or 0
            rose |= count > before
            self._before[file] = count
        return rose


def _kills(file: Path) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
