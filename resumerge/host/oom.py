"""The kernel's counts of OOM kills, and the memory budget after an OOM kill."""

from __future__ import annotations

from pathlib import Path

from resumerge.host.memory import cgroups
from resumerge.host.system import kernel_file

_COUNTED_IN = ("memory.oom_control", "memory.events")
"""The files of a cgroup that count OOM kills, of v1 and v2.

In v1, a kill is counted only in the killed process's own cgroup.
"""


def lowered_budget(budget: int, floor: int = 0) -> int:
    """Return the memory budget in bytes after an OOM kill: half of the earlier budget.

    Args:
        budget: the earlier budget in bytes.
        floor: the bytes that one thread needs. The result is not lower, unless `budget` is.
    """
    return min(budget, max(floor, budget // 2))


class OomKills:
    """The kernel's counts of OOM kills in the cgroups of processes, and on the machine."""

    def __init__(self) -> None:
        self._before: dict[Path, int] = {}
        self.watch("self")

    def watch(self, pid: int | str) -> None:
        """Start to watch the counts of a live process's cgroups.

        Call this repeatedly, because a process can be moved to another cgroup.
        """
        files = [group.folder / name for group in cgroups(pid) for name in _COUNTED_IN]
        for file in (*files, kernel_file("/proc/vmstat")):
            if file not in self._before and (count := _kills(file)) is not None:
                self._before[file] = count

    def rose(self) -> bool:
        """Return whether the kernel killed a process since the last call.

        An OOM kill of another program on the machine also counts. A false alarm only lowers the
        budget, but after a missed kill the next worker would be killed, too.
        """
        has_risen = False
        for file, previous_count in self._before.items():
            count = _kills(file) or 0
            has_risen |= count > previous_count
            self._before[file] = count
        return has_risen


def _kills(file: Path) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
