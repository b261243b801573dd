"""The journal of a comparison: a row for each tensor, so that a killed comparison goes on.

It is a file of JSON Lines that only grows, ``STATE/comparisons/DIGEST.jsonl``: one record for each
tensor, after the hash of its text. The digest identifies the compared files and their versions, so
that other files have another journal. It is no ledger: a ledger pins a plan whose output is
written, and other machines read it. Here only these rows are written, which can be computed again
at any time.
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
from resumerge.errors import refuse
from resumerge.planning import fingerprint_parts
from resumerge.storage import Storage

VERSION = 1
"""The version of the rows' arithmetic: rows of another one are not used."""

FOLDER = "comparisons"
SYNC_SECONDS = 0.5
"""Seconds between two syncs: what a power cut can cost. A process that is killed loses nothing."""

_HASH = 32


class Journal:
    """The rows of a comparison, by the tensor's name.

    Attributes:
        rows: the rows computed by this process and by earlier ones.
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
        """Open the journal of a comparison, or begin one; one process may have it.

        Args:
            models: the compared models.
            state: the state folder.
            storage: writes it.

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
        """Add the row of a tensor. It outlives this process, and soon a power cut as well."""
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
        """Read the rows up to the first damaged or cut-off one; return where they end."""
        end = 0
        with os.fdopen(os.dup(self._fd), "rb") as stream:
            stream.seek(0)
            for line in stream:
                found, _, text = line.partition(b" ")
                text = text.removesuffix(b"\n")
                whole = line.endswith(b"\n") and len(found) == _HASH
                if not whole or xxhash.xxh3_128_hexdigest(text).encode() != found:
                    break
                name, row = json.loads(text)
                self.rows[name] = row
                end += len(line)
        return end


def _digest(models: Models) -> str:
    """Return the digest of the compared models, with the stamps of local files."""
    facts = [source.identity() for source in models.sources]
    stages = [fingerprint_parts(plan) for plan in models.stages.plans]
    stamps = [
        [file.stamp.as_json() if file.stamp else None for file in source.files.values()]
        for source in models.read.values()
    ]
    text = json.dumps([VERSION, facts, stages, stamps, models.has_base], sort_keys=True)
    return xxhash.xxh3_128_hexdigest(text.encode())
