"""Whether the kernel has killed a process for want of memory."""

from __future__ import annotations

from pathlib import Path

from resumerge.host.memory import cgroups

_COUNTED_IN = ("memory.oom_control", "memory.events")
"""Files of a cgroup, v1 (which counts in the victim's own group alone) and v2."""


class OomKills:
    """The kernel's counts of its kills: of the cgroups of a process, and of the machine."""

    def __init__(self) -> None:
        self._before: dict[Path, int] = {}
        self.look("self")

    def look(self, pid: int | str) -> None:
        """Count from now on in the cgroups of a live process, which may have been moved."""
        files = [group.folder / name for group in cgroups(pid) for name in _COUNTED_IN]
        for file in (*files, Path("/proc/vmstat")):
            if file not in self._before and (count := _kills(file)) is not None:
                self._before[file] = count

    def rose(self) -> bool:
        """Whether the kernel killed since; counts from now on.

        A kill elsewhere on the machine counts as well: to take it for ours costs a smaller
        budget, where the opposite mistake would cost the same death again.
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
