"""What is known of files of the Hub, kept in the state folder so that it is not paid for twice.

Verdicts: whether a cached file had the content that its name says, with the size, modification
time and inode it had when it was read. Damages: which files were found damaged, and when, since
whatever was computed from them before is not to be trusted. Listings: the files of repos at a
commit, with size and etag. Headers: those of safetensors files, by etag, so that a header is asked
for once. Validators: the ETag that a server gave with the first bytes of a partial file.

The database may be deleted at any time: everything in it can be found out again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RECORDS_FILE = "hub.db"
BUSY_SECONDS = 20.0

_TABLES = """
CREATE TABLE IF NOT EXISTS verdicts (
    path TEXT PRIMARY KEY, etag TEXT, size INTEGER, mtime_ns INTEGER, inode INTEGER,
    intact INTEGER, at TEXT);
CREATE TABLE IF NOT EXISTS damages (id INTEGER PRIMARY KEY, path TEXT, etag TEXT, at TEXT);
CREATE TABLE IF NOT EXISTS listings (
    repo TEXT, revision TEXT, files TEXT, PRIMARY KEY (repo, revision));
CREATE TABLE IF NOT EXISTS headers (etag TEXT PRIMARY KEY, header BLOB);
CREATE TABLE IF NOT EXISTS validators (path TEXT PRIMARY KEY, etag TEXT);
"""


@dataclass(frozen=True)
class Damage:
    """A file that was found damaged.

    Args:
        at: UTC, ISO 8601.
    """

    id: int
    path: str
    at: str


class MetadataCache:
    """The database; may be used by several threads and processes at once.

    It is made when something is first written to it. Where that is not possible (a read-only or
    full disk), it lives in memory and is forgotten.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """
        Args:
            folder: the state folder; None keeps nothing after this process.
        """
        self._path = folder / RECORDS_FILE if folder is not None else None
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def verdict(self, path: Path, etag: str) -> bool | None:
        """Whether a file is intact, if it is the one that was read; None if that is not known."""
        facts = _facts(path)
        rows = self._read(
            "SELECT etag, size, mtime_ns, inode, intact FROM verdicts WHERE path = ?", [_key(path)]
        )
        if facts is None or not rows or rows[0][:4] != (etag, *facts):
            return None
        return bool(rows[0][4])

    def settle(self, path: Path, etag: str, intact: bool) -> None:
        """Note a verdict on a file as it is now; damage is noted for good, too."""
        facts = _facts(path)
        if facts is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        known = self.verdict(path, etag)
        self._write(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?)",
            [_key(path), etag, *facts, int(intact), now],
        )
        if not intact and known is not False:
            self._write(
                "INSERT INTO damages (path, etag, at) VALUES (?, ?, ?)", [_key(path), etag, now]
            )

    def forget(self, path: Path) -> None:
        """Forget the verdict on a file, which is being removed."""
        self._write("DELETE FROM verdicts WHERE path = ?", [_key(path)])

    def damages(self, path: Path, since: str) -> list[Damage]:
        """When a file was found damaged, from a point in time on (UTC, ISO 8601)."""
        rows = self._read(
            "SELECT id, path, at FROM damages WHERE path = ? AND at >= ? ORDER BY id",
            [_key(path), since],
        )
        return [Damage(*row) for row in rows]

    def listing(self, repo: str, commit: str) -> dict[str, tuple[int, str]]:
        """Size and etag of the files of a repo at a commit; empty where that is not known."""
        rows = self._read(
            "SELECT files FROM listings WHERE repo = ? AND revision = ?", [repo, commit]
        )
        found = json.loads(rows[0][0]) if rows else {}
        return {name: (size, etag) for name, (size, etag) in found.items()}

    def keep_listing(self, repo: str, commit: str, files: Mapping[str, tuple[int, str]]) -> None:
        """Note them; a commit never changes."""
        self._write(
            "INSERT OR REPLACE INTO listings VALUES (?, ?, ?)", [repo, commit, json.dumps(files)]
        )

    def header(self, etag: str) -> bytes | None:
        """The first bytes of a safetensors file: length and JSON."""
        rows = self._read("SELECT header FROM headers WHERE etag = ?", [etag])
        return bytes(rows[0][0]) if rows else None

    def keep_header(self, etag: str, header: bytes | None) -> None:
        """Note a file's header, or with None forget it."""
        if header is None:
            self._write("DELETE FROM headers WHERE etag = ?", [etag])
        else:
            self._write("INSERT OR REPLACE INTO headers VALUES (?, ?)", [etag, header])

    def validator(self, path: Path) -> str | None:
        """The strong ETag that a server gave with the first bytes of a partial file."""
        rows = self._read("SELECT etag FROM validators WHERE path = ?", [str(path)])
        return str(rows[0][0]) if rows else None

    def keep_validator(self, path: Path, etag: str | None) -> None:
        """Note it, or with None forget it."""
        if etag is None:
            self._write("DELETE FROM validators WHERE path = ?", [str(path)])
        else:
            self._write("INSERT OR REPLACE INTO validators VALUES (?, ?)", [str(path), etag])

    def _read(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._db is None and (self._path is None or not self._path.exists()):
                return []
            try:
                return self._database().execute(sql, values).fetchall()
            except sqlite3.DatabaseError:
                return []

    def _write(self, sql: str, values: Sequence[Any]) -> None:
        with self._lock:
            for _ in range(2):
                try:
                    with self._database() as db:
                        db.execute(sql, values)
                    return
                except sqlite3.OperationalError:  # full, read-only, or held by another for long
                    return
                except sqlite3.DatabaseError:
                    self._start_over()

    def _database(self) -> sqlite3.Connection:
        if self._db is None:
            with suppress(OSError):
                if self._path is not None:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._db = self._open(str(self._path or ":memory:"))
            except sqlite3.OperationalError:
                self._db = self._open(":memory:")
            except sqlite3.DatabaseError:
                self._start_over()
                self._db = self._open(str(self._path))
        return self._db

    def _open(self, name: str) -> sqlite3.Connection:
        db = sqlite3.connect(name, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_TABLES)
        except BaseException:
            db.close()
            raise
        return db

    def _start_over(self) -> None:
        """The file is damaged: what it said is found out again."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self._path}{suffix}").unlink()


def _key(path: Path) -> str:
    return os.path.realpath(path)


def _facts(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
