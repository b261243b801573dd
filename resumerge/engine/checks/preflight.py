"""What is checked before the first byte is written: room on disk, memory, the output folder."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from resumerge.engine.execute.reporter import Reporter
from resumerge.engine.execute.shard_files import PARTIAL
from resumerge.engine.resources.governor import NOTE_SECONDS, SAMPLE_SECONDS, margin
from resumerge.errors import InputError, Problem, Resumable
from resumerge.host.machine import cores
from resumerge.host.memory import MACHINE, Memory, measure_memory, rss
from resumerge.hub.cache import cache_folder
from resumerge.hub.client import is_offline
from resumerge.planning.estimates.estimate import COMPANION_BYTES, disk_needed
from resumerge.planning.estimates.memory import MemoryNeed, memory_need
from resumerge.planning.plan import Plan
from resumerge.sources.hub.files import (
    describe_missing,
    hub_file,
    offline_error,
    partial_bytes,
)

OUTPUT, STATE = "output folder", "state folder"

SHOWN = 5
"""Files that a message names."""


LONGEST_NAME = 255
"""Bytes of one name in a path, on every filesystem that is in use."""

LONGEST_PATH = 4096 - 512
"""Bytes; the rest is for the names of files inside."""


def check_path(path: Path, what: str) -> list[Problem]:
    """A path must be one that can be written down, and that a folder can have.

    Args:
        what: it is for, in a message: ``output folder``.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        found = "bytes that are not UTF-8"
    else:
        found = _unfit(path)
    if not found:
        return []
    return [
        Problem(
            f"The {what} cannot be used",
            where=str(path).encode(errors="backslashreplace").decode(),
            expected="a folder, or a name that a new folder can have",
            found=found,
            fix=f"name another {what}",
        )
    ]


def _unfit(path: Path) -> str:
    """What is wrong with the name of a folder; empty if nothing."""
    if "\0" in str(path):
        return "a null byte in its name"
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest > LONGEST_NAME:
        return f"a name of {longest} bytes"
    if len(os.fsencode(path)) > LONGEST_PATH:
        return f"a path of {len(os.fsencode(path))} bytes"
    try:
        for folder in (path, *path.parents):
            if folder.is_symlink() and not folder.exists():
                return f"{folder} is a link to nothing, {folder.readlink()}"
            if folder.exists():
                return "" if folder.is_dir() or folder == path else f"{folder} is a file"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def check_writable(path: Path, what: str) -> list[Problem]:
    """A folder must be one that files can be made in, or whose nearest parent is."""
    there = next(folder for folder in (path, *path.parents) if folder.is_dir())
    if os.access(there, os.W_OK | os.X_OK):
        return []
    return [
        Problem(
            f"The {what} cannot be written to",
            where=str(path),
            found=f"{there} is read-only for this user",
            fix=f"change its permissions, or name another {what}",
        )
    ]


def check_output(out: Path, ours: Collection[str] = ()) -> list[Problem]:
    """The output must be a folder that is new or empty, and can be written to.

    Args:
        ours: names of files that are to be given up, and so do not count.
    """
    if not out.exists():
        return check_writable(out, OUTPUT)
    others = (name for name in _files(out) if name not in ours) if out.is_dir() else ()
    inside = sorted(itertools.islice(others, SHOWN))
    if out.is_dir() and not inside:
        return check_writable(out, OUTPUT)
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


def check_outside(out: Path, sources: Iterable[Path], what: str = OUTPUT) -> list[Problem]:
    """The output must not lie inside a source: it would be taken for a part of it next time.

    Nor be one: what is there may be given up for it.
    """
    return [
        Problem(
            f"The {what} lies inside a source",
            where=str(out),
            found=f"inside {folder}",
            fix="name a folder beside it",
        )
        for folder in sources
        if folder.resolve() in (out.resolve(), *out.resolve().parents)
    ]


def _files(folder: Path) -> Iterator[str]:
    """Everything below a folder but folders, by its path from there."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(place) / name).relative_to(folder))


def room_needed(plan: Plan, *, then_delete: bool) -> int:
    """Bytes to be free where the output goes.

    Args:
        then_delete: shards go away once the mirror has them, so that one must fit.
    """
    if not then_delete:
        return disk_needed(plan)
    return max((shard.nbytes for shard in plan.shards), default=0) + COMPANION_BYTES


def check_disk(out: Path, needed: int, *, then_delete: bool = False) -> list[Problem]:
    """There must be room for the whole output, or for one shard of it.

    Args:
        then_delete: shards go away once the mirror has them.
    """
    free = free_bytes(out)
    if free >= needed:
        return []
    smaller = "choose smaller shards with --shard-size"
    elsewhere = "send shards elsewhere as they are made, with --mirror and --mirror-then-delete"
    return [
        Problem(
            "The disk is too small for the largest shard"
            if then_delete
            else "The disk is too small for the output",
            where=str(out),
            expected=f"{needed / 1e9:.2f} GB free",
            found=f"{free / 1e9:.2f} GB free",
            fix=f"free {(needed - free) / 1e9:.2f} GB, or name an output on another disk, or "
            + (smaller if then_delete else elsewhere),
        )
    ]


def check_sources(plan: Plan, out: Path, room: int, *, offline: bool, evict: bool) -> list[Problem]:
    """Offline every file must be there; else there must be room for what is to be downloaded.

    Args:
        room: bytes that the output needs, perhaps on the same disk.
    """
    absent = {
        number: sorted(n for n in plan.bytes_needed(number) if not source.files[n].present)
        for number, source in enumerate(plan.sources)
    }
    files = [hub_file(plan.sources[k], name) for k, names in absent.items() for name in names]
    if files and (offline or is_offline()):
        return [
            offline_error(
                repo,
                commit,
                [describe_missing(f) for f in files if (f.repo, f.commit) == (repo, commit)],
            ).problems[0]
            for repo, commit in dict.fromkeys((file.repo, file.commit) for file in files)
        ]
    needed = sum(file.size - partial_bytes(file) for file in files)
    if evict or not needed:
        return []
    cache, there = existing_folder(cache_folder().absolute()), existing_folder(out.absolute())
    if cache and there and cache.stat().st_dev == there.stat().st_dev:
        needed += room
    free = free_bytes(cache_folder().absolute())
    if free >= needed:
        return []
    return [
        Problem(
            "The disk is too small for the downloads",
            where=str(cache),
            expected=f"{needed / 1e9:.2f} GB free",
            found=f"{free / 1e9:.2f} GB free",
            fix="free some space, move the cache by setting HF_HOME, or add --evict, which deletes "
            "downloads of this run as soon as they are no longer needed",
        )
    ]


def free_bytes(path: Path) -> int:
    """Free space of the disk that a path, which need not exist yet, would be on."""
    folder = existing_folder(path)
    return shutil.disk_usage(folder).free if folder else 0


def existing_folder(path: Path) -> Path | None:
    """The path, or the nearest folder above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)


def memory_budget(asked: int | None) -> int:
    """Bytes of RSS that the process may have: what was asked for, and what there is to have."""
    memory = measure_memory()
    room = int(memory.available + rss() - margin(memory.total))
    return max(0, room if asked is None else min(asked, room))


def most_threads() -> int:
    """More of them would only wait for each other."""
    return max(32, 4 * cores())


def too_many_threads(asked: int | None) -> list[str]:
    """A note where that many threads will not be used."""
    most = most_threads()
    many = asked is not None and asked > most
    return [f"{asked} threads would only wait for each other: {most} at most"] if many else []


def wait_for_budget(plan: Plan, asked: int | None, patience: float, reporter: Reporter) -> int:
    """The budget of a run that has begun, once it holds one thread; at once as a rule.

    Args:
        asked: as for `memory_budget`; nothing is waited for where that itself is too little.
        patience: seconds to wait.

    Raises:
        Resumable: others left too little for as long as the patience lasts.
    """
    need = memory_need(plan, 1)
    started, told = time.monotonic(), float("-inf")
    while (budget := memory_budget(asked)) < need.enough and not _asks_too_little(asked, need):
        now = time.monotonic()
        if now - started > patience:
            problem = _too_little(need, budget, asked)
            raise Resumable("memory", f"No memory to go on in {now - started:.0f} s\n{problem}")
        if now - told > NOTE_SECONDS:
            told = now
            needed = f"{need.enough / 1e6:.0f} MB are needed to go on"
            reporter.note(f"Waiting for memory: {_left(measure_memory())}; {needed}")
        reporter.heartbeat()
        time.sleep(SAMPLE_SECONDS)
    return budget


def fit_threads(plan: Plan, wanted: int | None, budget: int, asked: int | None = None) -> int:
    """The number of threads that the budget allows.

    Args:
        wanted: as many as this at most.
        asked: what the budget was made from, for the message.

    Raises:
        InputError: not even one thread fits.
    """
    threads = min(wanted or cores(), most_threads())
    while True:
        need = memory_need(plan, threads)
        if need.enough <= budget:
            return threads
        if threads == 1:
            raise InputError([_too_little(need, budget, asked)])
        threads -= 1


def _asks_too_little(asked: int | None, need: MemoryNeed) -> bool:
    return asked is not None and asked < need.enough


def _too_little(need: MemoryNeed, budget: int, asked: int | None) -> Problem:
    needed = math.ceil(need.enough / 1e6)
    if asked is not None and _asks_too_little(asked, need):
        found, fix = f"--memory {asked / 1e6:.0f}MB", f"raise --memory to {needed}MB or more"
    else:
        memory = measure_memory()
        found = f"{budget / 1e6:.0f} MB: {_left(memory)}"
        more = math.ceil(needed - budget / 1e6)
        fix = f"end other programs in {memory.bound}, or raise its limit: {more} MB are lacking"
        if memory.bound == MACHINE:
            fix = f"end other programs on this machine: {more} MB are lacking"
    return Problem(
        "The memory budget is too small for this merge, even with one thread",
        expected=f"at least {needed} MB",
        found=found,
        fix=fix,
    )


def _left(memory: Memory) -> str:
    left, total = memory.available / 1e6, memory.total / 1e6
    return f"{memory.bound} has {left:.0f} MB left of {total:.0f} MB"
