"""The limits of one person and of all people together, and the problems of exceeding them."""

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
    """The limits of one person, and of all people together.

    Args:
        all_runs: the most merges in progress, of all people together.
        runs: the most merges in progress, of one person.
        disk: the most bytes of a person's files, including caches.
        memory: the limit of a merge's resident memory (``--memory``), in bytes.
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
            plan: the document of ``resumerge plan --json`` for the merge.
            used: bytes on the disk that the person's files use now.
            running: ids of the person's runs in progress.
            others: the number of other people's runs in progress.
        """
        needed_bytes = plan["disk"]["needed"]
        problems = [*self.too_many(running, others)]
        if used + needed_bytes > self.disk:
            problems.append(
                Problem(
                    "The merge needs more disk than you have here",
                    expected=f"at most {show_size(self.disk)} for all of your files",
                    found=f"{show_size(used)} in use, and {show_size(needed_bytes)} needed",
                    fix="remove runs that your mirrors have, choose 'Mirror then delete' with a "
                    "small shard size, or duplicate the Space",
                )
            )
        return problems

    def too_many(self, running: Sequence[str], others: int) -> Iterator[Problem]:
        """Yield a problem if another merge would exceed the limits of merges in progress."""
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
    """Return the disk space of the files below a folder in bytes. Links are not followed."""
    bytes_of_files: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = (Path(parent) / name).lstat()
            except OSError:  # the file was deleted meanwhile
                continue
            bytes_of_files[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(bytes_of_files.values())
