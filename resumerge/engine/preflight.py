"""What is checked before the first byte is written: room on disk, memory, the output folder."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from resumerge.engine.files import PARTIAL
from resumerge.engine.governor import MARGIN
from resumerge.errors import InputError, Problem, refuse
from resumerge.host.machine import cores
from resumerge.host.memory import measure_memory
from resumerge.plan.estimate import Estimate, estimate
from resumerge.plan.model import Plan

SHOWN = 5
"""Files that a message names."""


def check_output(out: Path, ours: Collection[str] = ()) -> list[Problem]:
    """The output must be a folder that is new or empty.

    Args:
        ours: names of files that are to be given up, and so do not count.
    """
    if not out.exists():
        return []
    others = (name for name in _files(out) if name not in ours) if out.is_dir() else ()
    inside = sorted(itertools.islice(others, SHOWN))
    if out.is_dir() and not inside:
        return []
    unfinished = any(name.endswith(PARTIAL) for name in inside)
    return [
        Problem(
            "The output folder holds something else" if inside else "The output is a file",
            where=str(out),
            expected="nothing but what the run wrote there"
            if ours
            else "a new or empty folder, or the folder of an unfinished run",
            found=", ".join(inside) or f"a file of {out.stat().st_size} bytes",
            fix="give its ledger's folder with --state-dir, or name another output folder"
            if unfinished
            else "move away what is to be kept, and delete the rest"
            if ours
            else "name another output folder",
        )
    ]


def check_outside(out: Path, sources: Iterable[Path]) -> list[Problem]:
    """The output must not lie inside a source: it would be taken for a part of it next time."""
    return [
        Problem(
            "The output folder lies inside a source",
            where=str(out),
            found=f"inside {folder}",
            fix="name a folder beside it",
        )
        for folder in sources
        if folder.resolve() in out.resolve().parents
    ]


def _files(folder: Path) -> Iterator[str]:
    """Everything below a folder but folders, by its path from there."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(place) / name).relative_to(folder))


def check_disk(out: Path, needed: int) -> list[Problem]:
    """There must be room for the whole output."""
    free = free_bytes(out)
    if free >= needed:
        return []
    return [
        Problem(
            "The disk is too small for the output",
            where=str(out),
            expected=f"{needed / 1e9:.2f} GB free",
            found=f"{free / 1e9:.2f} GB free",
            fix=f"free {(needed - free) / 1e9:.2f} GB, or name an output on another disk",
        )
    ]


def free_bytes(path: Path) -> int:
    """Free space of the disk that a path, which need not exist yet, would be on."""
    for folder in (path, *path.parents):
        if folder.exists():
            return shutil.disk_usage(folder).free
    return 0


def memory_budget(asked: int | None) -> int:
    """Bytes of RSS that the process may have: what was asked for, and what there is to have."""
    memory = measure_memory()
    room = int(memory.available - memory.total * MARGIN)
    return max(0, room if asked is None else min(asked, room))


def fit_threads(plan: Plan, asked: int | None, budget: int) -> tuple[int, Estimate]:
    """The number of threads that the budget allows, and the estimate with that many.

    Raises:
        InputError: not even one thread fits.
    """
    threads = asked or cores()
    while True:
        predicted = estimate(plan, threads)
        if predicted.peak_rss <= budget:
            return threads, predicted
        if threads == 1:
            raise InputError([_too_little(predicted.peak_rss, budget)])
        threads -= 1


def _too_little(needed: int, budget: int) -> Problem:
    return refuse(
        "The memory budget is too small for this merge",
        expected=f"at least {needed / 1e6:.0f} MB",
        found=f"{budget / 1e6:.0f} MB",
        fix=f"raise --memory to {needed / 1e6:.0f}MB or more, or free memory on this machine",
    ).problems[0]
