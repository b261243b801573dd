"""Metadata of remote files in the state folder, which saves repeated reads and requests.

- Verdicts: whether a cached file had the right content. Each includes the size, times and inode of
  the file when it was read.
- Damages: the files that were found damaged, each with the time when it was found. Results that
  were computed from the file before that time may be wrong.
- Listings: the files of a model at a version, each with size and etag.
- Headers: the first bytes of weight files, by the identity of the content.
- Validators: the ETag that a server sent with the first bytes of a partial file.

The database may be deleted at any time. Its content is then read or requested again.
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

DATABASE = "remote.db"
BUSY_SECONDS = 20.0

_TABLES = """
CREATE TABLE IF NOT EXISTS verdicts (
    path TEXT PRIMARY KEY, etag TEXT, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    inode INTEGER, intact INTEGER, at TEXT);
CREATE TABLE IF NOT EXISTS damages (id INTEGER PRIMARY KEY, path TEXT, etag TEXT, at TEXT);
CREATE TABLE IF NOT EXISTS listings (
    model TEXT, revision TEXT, files TEXT, PRIMARY KEY (model, revision));
CREATE TABLE IF NOT EXISTS headers (identity TEXT PRIMARY KEY, header BLOB);
CREATE TABLE IF NOT EXISTS validators (path TEXT PRIMARY KEY, etag TEXT);
"""


@dataclass(frozen=True)
class Damage:
    """A finding that a file is damaged.

    Args:
        id: the number of the finding.
        path: the file's path, with links resolved.
        at: the time when the damage was found; UTC, ISO 8601.
    """

    id: int
    path: str
    at: str


class MetadataCache:
    """The database of metadata. Several threads and processes may use it at the same time.

    The first write creates the file. If that fails (a read-only or full disk), the database is kept
    in memory until the process ends.

    Args:
        folder: the state folder; None to keep the database in memory only.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / DATABASE if folder is not None else None
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the database. A later call of any method opens it again."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def verdict(self, path: Path, etag: str) -> bool | None:
        """Return whether a file is intact; None if it was not read, or has changed since."""
        facts = _facts(path)
        rows = self._read(
            "SELECT intact, etag, size, mtime_ns, ctime_ns, inode FROM verdicts WHERE path = ?",
            [_key(path)],
        )
        if facts is None or not rows or rows[0][1:] != (etag, *facts):
            return None
        return bool(rows[0][0])

    def record_verdict(self, path: Path, etag: str, intact: bool) -> None:
        """Record whether a file in its present state is intact.

        If it is not, also record a damage, which is kept when a later verdict replaces this one.
        """
        facts = _facts(path)
        if facts is None:
            return
        recorded_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        previous_verdict = self.verdict(path, etag)
        self._write(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [_key(path), etag, *facts, int(intact), recorded_at],
        )
        if not intact and previous_verdict is not False:
            self._write(
                "INSERT INTO damages (path, etag, at) VALUES (?, ?, ?)",
                [_key(path), etag, recorded_at],
            )

    def forget_verdict(self, path: Path) -> None:
        """Delete the verdict on a file that is being removed."""
        self._write("DELETE FROM verdicts WHERE path = ?", [_key(path)])

    def damages(self, path: Path, since: str) -> list[Damage]:
        """Return the damages of a file that were found at or after a time (UTC, ISO 8601)."""
        rows = self._read(
            "SELECT id, path, at FROM damages WHERE path = ? AND at >= ? ORDER BY id",
            [_key(path), since],
        )
        return [Damage(*row) for row in rows]

    def listing(self, model: str, revision: str) -> dict[str, tuple[int, str]]:
        """Return the size and etag of a version's files, by name; empty if not recorded."""
        rows = self._read(
            "SELECT files FROM listings WHERE model = ? AND revision = ?", [model, revision]
        )
        try:
            entries = json.loads(rows[0][0]) if rows else {}
            sizes_and_etags = {name: (size, etag) for name, (size, etag) in entries.items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}
        is_valid = all(
            type(size) is int and type(etag) is str for size, etag in sizes_and_etags.values()
        )
        return sizes_and_etags if is_valid else {}

    def store_listing(
        self, model: str, revision: str, files: Mapping[str, tuple[int, str]]
    ) -> None:
        """Record the size and etag of a version's files, by name."""
        self._write(
            "INSERT OR REPLACE INTO listings VALUES (?, ?, ?)", [model, revision, json.dumps(files)]
        )

    def header(self, identity: str) -> bytes | None:
        """Return the first bytes of a weight file, which describe its tensors; None if unknown."""
        rows = self._read("SELECT header FROM headers WHERE identity = ?", [identity])
        return rows[0][0] if rows and isinstance(rows[0][0], bytes) else None

    def store_header(self, identity: str, header: bytes | None) -> None:
        """Record a file's header; None deletes it."""
        if header is None:
            self._write("DELETE FROM headers WHERE identity = ?", [identity])
        else:
            self._write("INSERT OR REPLACE INTO headers VALUES (?, ?)", [identity, header])

    def validator(self, path: Path) -> str | None:
        """Return the strong ETag that a server sent with a partial file's bytes, or None."""
        rows = self._read("SELECT etag FROM validators WHERE path = ?", [str(path)])
        return str(rows[0][0]) if rows else None

    def store_validator(self, path: Path, etag: str | None) -> None:
        """Record the ETag of a partial file; None deletes it."""
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
                except sqlite3.OperationalError:  # disk full or read-only, or locked for too long
                    return
                except sqlite3.DatabaseError:
                    self._recreate()

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
                self._recreate()
                self._db = self._open(str(self._path))
        return self._db

    def _open(self, name: str) -> sqlite3.Connection:
        db = sqlite3.connect(name, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_TABLES)
        except UnicodeDecodeError as error:  # SQLite's message repeats damaged text
            db.close()
            raise sqlite3.DatabaseError(str(error)) from None
        except BaseException:
            db.close()
            raise
        return db

    def _recreate(self) -> None:
        """Delete the database, which is damaged. The next access creates a new one."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self._path}{suffix}").unlink()


def _key(path: Path) -> str:
    return os.path.realpath(path)


def _facts(path: Path) -> tuple[int, int, int, int] | None:
    """Return size, modification time, change time (ns) and inode; None if unreadable."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino
