"""Is a mirror consistent? What its newest snapshot, or `done.json`, promises is compared with what
is there, by SHA-256.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from resumerge.mirror.lease_record import DONE
from resumerge.mirror.manifest import read_manifest
from resumerge.mirror.snapshots import Snapshot, is_first, newest, opened, snapshots
from resumerge.mirror.stores.base import Moved, Store

TRIES = 20
"""A mirror that is worked on meanwhile may change between two looks; then it is looked at anew."""


@dataclass(frozen=True)
class AuditResult:
    """What was found.

    Args:
        state: ``empty`` where nothing is promised yet, ``unfinished`` or ``finished``.
        snapshot: the newest one that is whole, of an unfinished mirror.
        files: bytes and SHA-256 of each file that is promised, by name.
        problems: what is wrong, by the name of the file.
    """

    state: str
    snapshot: Snapshot | None
    files: Mapping[str, tuple[int, str]]
    problems: Mapping[str, str]

    @property
    def consistent(self) -> bool:
        return not self.problems


def check_mirror(store: Store, moved: Moved = lambda nbytes: None) -> AuditResult:
    """Read everything that a mirror promises, also while it is being written to.

    Args:
        moved: told of the bytes that are read; may raise to stop.

    Raises:
        OSError: it cannot be read now.
    """
    for _ in range(TRIES):
        before = _books(store)
        found = _look(store, before, moved)
        if found.consistent or _books(store) == before:
            break
    return found


def _books(store: Store) -> set[str]:
    """Names of what says what is promised."""
    names = store.list()
    return {snapshot.name for snapshot in snapshots(names)} | ({DONE} & set(names))


def _look(store: Store, books: set[str], moved: Moved) -> AuditResult:
    done = read_manifest(store) if DONE in books else None
    if done is not None:
        return AuditResult("finished", None, done.files, compare(store, done.files, moved))
    known = snapshots(books)
    found = newest(store, books)
    if found is None:
        first = not known or is_first(store.list(), store.own_files)
        problems = {} if first else {known[0].name: "no snapshot of the ledger is whole"}
        return AuditResult("empty", None, {}, problems)
    snapshot, data = found
    try:
        with opened(data) as ledger:
            files = ledger.mirrored_files()
    except sqlite3.DatabaseError as error:
        return AuditResult("unfinished", snapshot, {}, {snapshot.name: str(error)})
    return AuditResult("unfinished", snapshot, files, compare(store, files, moved))


def compare(store: Store, files: Mapping[str, tuple[int, str]], moved: Moved) -> dict[str, str]:
    """What is wrong with which file."""
    there = store.list()
    problems = {}
    for name, (nbytes, sha256) in files.items():
        if ".." in PurePosixPath(name).parts or name.startswith("/"):
            problems[name] = "its name leads out of the mirror"
        elif name not in there:
            problems[name] = "it is missing"
        elif there[name] != nbytes:
            problems[name] = f"it has {there[name]} bytes and not {nbytes}"
        elif store.sha256(name, moved) != sha256:
            problems[name] = "its content differs"
    return problems
