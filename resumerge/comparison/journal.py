"""The journal of a comparison: a row for each tensor, so that a killed comparison can continue.

The journal is a file of JSON Lines, ``STATE/comparisons/DIGEST.jsonl``, to which lines are only
appended: for each tensor the hash of its record, and the record. The digest identifies the compared
files and their versions, so that other files have another journal. A journal is not a ledger: a
ledger pins a plan whose output is written, and other machines read it. The rows of a journal can be
computed again at any time.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from resumerge.comparison.models import Models
from resumerge.comparison.relations import MEASURED
from resumerge.errors import refuse
from resumerge.planning import fingerprint_parts
from resumerge.storage import Storage

VERSION = 1
"""The version of the rows' arithmetic: rows of another version are not used. A new relation needs
no new version, because the keys of all evidence are in the journal's digest."""

FOLDER = "comparisons"
SYNC_SECONDS = 0.5
"""The seconds between two syncs, and so the work that a power cut can cost. A kill costs
nothing."""

_HASH = 32


class Journal:
    """The rows of a comparison, by the tensor's name.

    Attributes:
        rows: the rows that this process and earlier processes computed.
    """

    def __init__(self, path: Path, fd: int, storage: Storage) -> None:
        self._path, self._fd, self._storage = path, fd, storage
        self.rows: dict[str, Any] = {}
        self._end = self._read()
        os.ftruncate(fd, self._end)
        self._synced = time.monotonic()

    @classmethod
    @contextmanager
    def of(cls, models: Models, state: Path, storage: Storage) -> Iterator[Journal]:
        """Open the journal of a comparison, or create it; only one process may have it open.

        Args:
            models: the compared models; their identities and the stamps of their files determine
                the journal's name.
            state: the state folder, below which the folder `FOLDER` is created if it is missing.
            storage: the operations that write it.

        Raises:
            InputError: another process compares the same models.
            OSError: the state folder cannot be written.
        """
        folder = state / FOLDER
        storage.make_folder(folder)
        path = folder / f"{_digest(models)}.jsonl"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise refuse(
                    "Another process compares these models",
                    where=path,
                    found="its journal is locked",
                    fix="wait for it, or stop it",
                ) from None
            journal = cls(path, fd, storage)
            yield journal
            journal.sync()
        finally:
            os.close(fd)

    def add(self, name: str, row: Any) -> None:
        """Add the row of a tensor. It survives a kill at once, and a power cut after a sync."""
        text = json.dumps([name, row], separators=(",", ":"))
        line = f"{xxhash.xxh3_128_hexdigest(text.encode())} {text}\n".encode()
        self._storage.write(self._fd, line, self._end)
        self._end += len(line)
        self.rows[name] = row
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Make all rows durable."""
        self._storage.sync_data(self._fd)
        self._synced = time.monotonic()

    def remove(self) -> None:
        """Remove the file, once the document is complete."""
        self._storage.remove(self._path)

    def _read(self) -> int:
        """Read the rows before the first damaged or cut-off row; return their length in bytes."""
        end = 0
        with os.fdopen(os.dup(self._fd), "rb") as stream:
            stream.seek(0)
            for line in stream:
                stored_hash, _, text = line.partition(b" ")
                text = text.removesuffix(b"\n")
                is_complete = line.endswith(b"\n") and len(stored_hash) == _HASH
                if not is_complete or xxhash.xxh3_128_hexdigest(text).encode() != stored_hash:
                    break
                name, row = json.loads(text)
                self.rows[name] = row
                end += len(line)
        return end


def _digest(models: Models) -> str:
    """Return the digest of the compared models, with the stamps of local files."""
    identities = [source.identity() for source in models.sources]
    stage_fingerprints = [fingerprint_parts(plan) for plan in models.stages.plans]
    stamps = [
        [file.stamp.as_json() if file.stamp else None for file in source.files.values()]
        for source in models.read.values()
    ]
    evidence_keys = sorted(MEASURED)
    text = json.dumps(
        [VERSION, evidence_keys, identities, stage_fingerprints, stamps, models.has_base],
        sort_keys=True,
    )
    return xxhash.xxh3_128_hexdigest(text.encode())
