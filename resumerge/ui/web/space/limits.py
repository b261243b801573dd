"""The limits of one person and of all people together, and the problems of plans above them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.errors import Problem
from resumerge.sizes import show_size


@dataclass(frozen=True)
class Limits:
    """The most that one person may use, and all people together.

    Args:
        all_runs: merges at once of all people.
        runs: merges at once of one person.
        disk: bytes of all files of the person, caches among them.
        memory: bytes of the resident memory of one merge, which ``--memory`` is set to.
    """

    all_runs: int = 3
    runs: int = 1
    disk: int = 20 * 10**9
    memory: int = 4 * 10**9

    def problems(
        self, plan: Mapping[str, Any], used: int, running: Sequence[str], others: int = 0
    ) -> list[Problem]:
        """Return the problems that forbid a merge.

        Args:
            plan: its document, of ``resumerge plan --json``.
            used: bytes on the disk now.
            running: ids of the person's runs that work.
            others: the number of working runs of other people.
        """
        needed = plan["disk"]["needed"]
        found = [*self.too_many(running, others)]
        if used + needed > self.disk:
            found.append(
                Problem(
                    "The merge needs more disk than you have here",
                    expected=f"at most {show_size(self.disk)} for all of your files",
                    found=f"{show_size(used)} in use, and {show_size(needed)} needed",
                    fix="remove runs that your mirrors have, choose 'Mirror then delete' with a "
                    "small shard size, or duplicate the Space",
                )
            )
        return found

    def too_many(self, running: Sequence[str], others: int) -> Iterator[Problem]:
        """Yield a problem if one more merge is one too many."""
        if len(running) >= self.runs:
            yield Problem(
                "You have as many merges at work as you may",
                expected=f"at most {self.runs} at once",
                found=", ".join(running),
                fix="wait until one is done, or stop it",
            )
        elif len(running) + others >= self.all_runs:
            yield Problem(
                "All people together have as many merges at work as this machine may have",
                expected=f"at most {self.all_runs} at once",
                found=f"{len(running) + others} at work",
                fix="wait until one is done, or duplicate the Space",
            )


def bytes_below(folder: Path) -> int:
    """Return the bytes that the files below a folder take on the disk; links are not followed."""
    found: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                known = (Path(parent) / name).lstat()
            except OSError:  # it is gone meanwhile
                continue
            found[known.st_dev, known.st_ino] = known.st_blocks * 512
    return sum(found.values())
