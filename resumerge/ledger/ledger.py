"""One run's journal: what is planned, what is committed, and what happened on the way."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resumerge.ledger.database import Database
from resumerge.ledger.newest import is_newest, make_tables

LEDGER_FILE = "ledger.db"
BUSY_SECONDS = 20.0


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Progress:
    """What the ledger knows of one unit.

    Args:
        hashes: 16 bytes for each committed block, in block order.
    """

    committed_blocks: int
    hashes: bytes
    checksum: str | None
    attempt: int | None
    batch: int | None


@dataclass(frozen=True)
class UnitCommit:
    """Blocks of one unit that are on disk and shall be committed.

    Args:
        hashes: of all its committed blocks, from the first one on.
        checksum: of the whole unit; None while blocks are missing.
        seconds: spent computing it in this batch.
    """

    number: int
    hashes: bytes
    checksum: str | None
    seconds: float


class Ledger:
    """The SQLite file of one run. May be used by several threads; every write is one transaction.

    Committed is what a write-ahead log synced to disk says (``synchronous=FULL``): a transaction
    that returned survives a power cut.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open a ledger.

        Args:
            read_only: leave the file and its journal mode as they are.

        Raises:
            sqlite3.DatabaseError: the file is not a database, or is damaged.
        """
        self.path = path
        self._lock = threading.RLock()
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=BUSY_SECONDS)
        self.db = Database(connection)
        if read_only:
            return
        try:
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise

    @classmethod
    def create(cls, path: Path) -> Ledger:
        """Make an empty ledger."""
        ledger = cls(path)
        make_tables(ledger.db)
        return ledger

    def check(self) -> None:
        """Read the whole file.

        Raises:
            sqlite3.DatabaseError: it is damaged.
        """
        with self._lock:
            found = self.db.execute("PRAGMA integrity_check").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            if not is_newest(self.db):
                from resumerge.ledger.schema import migrate  # slow to import, and rarely needed

                migrate(self.db.conn)
            if self.run() is None:
                raise sqlite3.DatabaseError("the ledger holds no run")

    def close(self) -> None:
        """Close the file; what was committed is in it."""
        with self._lock:
            self.db.conn.close()

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """Everything inside is committed at once, or not at all."""
        with self._lock, self.db.atomic():
            yield self.db

    # The run

    def begin(
        self,
        run: Mapping[str, Any],
        sources: Iterable[Mapping[str, Any]],
        shards: Iterable[Mapping[str, Any]],
        units: Iterable[Mapping[str, Any]],
    ) -> None:
        """Write down the plan."""
        with self.transaction() as db:
            db.table("run").insert(dict(run))
            db.table("sources").insert_all(map(dict, sources))
            db.table("shards").insert_all(map(dict, shards))
            db.table("units").insert_all(map(dict, units))

    def run(self) -> dict[str, Any] | None:
        """The run's row; None while the plan is not written."""
        rows = self.rows("SELECT * FROM run")
        return rows[0] if rows else None

    def set_state(self, state: str) -> None:
        """``planned``, ``running``, ``interrupted``, ``failed`` or ``done``."""
        with self.transaction() as db:
            db.execute("UPDATE run SET state = ?", [state])

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query, as dictionaries."""
        with self._lock:
            return list(self.db.query(sql, params))

    # Units and shards

    def progress(self) -> list[Progress]:
        """Of every unit, in the order of the plan."""
        return [
            Progress(
                row["committed_blocks"],
                row["block_hashes"] or b"",
                row["checksum"],
                row["attempt"],
                row["batch"],
            )
            for row in self.rows(
                "SELECT committed_blocks, block_hashes, checksum, attempt, batch "
                "FROM units ORDER BY number"
            )
        ]

    def commit_batch(
        self,
        attempt: int,
        batch: int,
        units: Sequence[UnitCommit],
        totals: Mapping[str, Any],
        sample: Mapping[str, int] | None = None,
    ) -> None:
        """Mark what a batch wrote as committed. Its bytes must be synced before.

        Args:
            totals: columns of the attempt that count its work so far.
            sample: a measurement of memory and progress to keep.
        """
        with self.transaction() as db:
            db.conn.executemany(
                "UPDATE units SET committed_blocks = ?, block_hashes = ?, checksum = ?, state = ?,"
                " attempt = ?, batch = ?, seconds = coalesce(seconds, 0) + ? WHERE number = ?",
                [
                    (
                        len(unit.hashes) // 16,
                        unit.hashes,
                        unit.checksum,
                        "committed" if unit.checksum else "pending",
                        attempt,
                        batch,
                        unit.seconds,
                        unit.number,
                    )
                    for unit in units
                ],
            )
            db.table("attempts").update(attempt, {**totals, "batches": batch, "last_seen": now()})
            if sample is not None:
                db.table("samples").insert({"at": now(), "attempt": attempt, **sample})

    def forget(self, numbers: Iterable[int], kind: str, **data: Any) -> None:
        """Make units pending again and their shards open, with an event that says why.

        What the mirror has of these shards is no longer theirs: it is noted no more.
        """
        wanted = list(numbers)
        with self.transaction() as db:
            db.conn.executemany(
                "UPDATE units SET committed_blocks = 0, block_hashes = NULL, checksum = NULL,"
                " state = 'pending' WHERE number = ?",
                [(number,) for number in wanted],
            )
            db.conn.executemany(
                "UPDATE shards SET state = 'open', sealed_at = NULL"
                " WHERE number = (SELECT shard FROM units WHERE number = ?)",
                [(number,) for number in wanted],
            )
            db.conn.executemany(
                "DELETE FROM mirrored WHERE name = (SELECT shards.name FROM shards JOIN units"
                " ON units.shard = shards.number WHERE units.number = ?)",
                [(number,) for number in wanted],
            )
            self.event(kind, units=len(wanted), **data)

    def seal(self, shard: int) -> None:
        """Mark a shard sealed; it must have its final name, durably, before."""
        with self.transaction() as db:
            db.table("shards").update(shard, {"state": "sealed", "sealed_at": now()})

    def note_companion(self, name: str, nbytes: int, checksum: str) -> None:
        """Note a file beside the shards, before it is written."""
        with self.transaction() as db:
            row = {"name": name, "nbytes": nbytes, "checksum": checksum}
            db.table("companions").upsert(row, pk="name")

    def companions(self) -> dict[str, str]:
        """The checksum of each file beside the shards that was noted, by name."""
        return {row["name"]: row["checksum"] for row in self.rows("SELECT * FROM companions")}

    def written_names(self) -> list[str]:
        """Every file that the run writes to its output folder, by final name."""
        rows = self.rows("SELECT name FROM shards UNION ALL SELECT name FROM companions")
        return [row["name"] for row in rows]

    # Downloads

    def note_download(self, path: str, repo: str, name: str, nbytes: int, inode: int) -> None:
        """Note a file of the Hub's cache that this run brings there."""
        row = {"path": path, "repo": repo, "name": name, "nbytes": nbytes, "inode": inode}
        with self.transaction() as db:
            db.table("downloads").upsert({**row, "at": now()}, pk="path")

    def forget_download(self, path: str) -> None:
        """It is not there any more."""
        with self.transaction() as db:
            db.execute("DELETE FROM downloads WHERE path = ?", [path])

    def downloads(self) -> dict[str, int]:
        """The inodes of the files that this run brought, by path."""
        return {row["path"]: row["inode"] for row in self.rows("SELECT path, inode FROM downloads")}

    # The mirror

    def set_mirror(self, url: str) -> None:
        """Where the run is mirrored from now on; nothing is there yet."""
        with self.transaction() as db:
            db.execute("UPDATE run SET mirror = ?", [url])
            db.execute("DELETE FROM mirrored")

    def note_mirrored(self, name: str, nbytes: int, sha256: str) -> None:
        """Note a file of the output that is in the mirror, whole."""
        row = {"name": name, "nbytes": nbytes, "sha256": sha256, "at": now()}
        with self.transaction() as db:
            db.table("mirrored").upsert(row, pk="name")

    def forget_mirrored(self, name: str) -> None:
        """It is not there any more, or not as it was."""
        with self.transaction() as db:
            db.execute("DELETE FROM mirrored WHERE name = ?", [name])

    def mirrored(self) -> dict[str, str]:
        """The SHA-256 of each file of the output that is in the mirror, by name.

        Of a ledger from before there were mirrors, which is only read: none.
        """
        if not self.rows("SELECT 1 FROM sqlite_master WHERE name = 'mirrored'"):
            return {}
        return {row["name"]: row["sha256"] for row in self.rows("SELECT * FROM mirrored")}

    # Attempts, events, samples

    def start_attempt(self, facts: Mapping[str, Any]) -> int:
        """Open an attempt; those that never ended were killed."""
        with self.transaction() as db:
            db.execute(
                "UPDATE attempts SET outcome = 'killed', ended = last_seen WHERE ended IS NULL"
            )
            row = {"started": now(), "last_seen": now(), "units_committed": 0, **facts}
            return db.table("attempts").insert(row)

    def end_attempt(self, attempt: int, outcome: str, **facts: Any) -> None:
        """Close an attempt: ``done``, ``interrupted``, ``error``, ``oom`` or ``killed``."""
        with self.transaction() as db:
            db.table("attempts").update(attempt, {"ended": now(), "outcome": outcome, **facts})

    def close_attempt(self, pid: int, outcome: str, peak_rss: int) -> None:
        """Close the attempt of a process that died without doing so, if there is one.

        Args:
            peak_rss: bytes; what the attempt wrote down itself holds where that is more.
        """
        with self.transaction() as db:
            db.execute(
                "UPDATE attempts SET outcome = ?, ended = ?,"
                " peak_rss = max(coalesce(peak_rss, 0), ?) WHERE pid = ? AND ended IS NULL",
                [outcome, now(), peak_rss, pid],
            )

    def event(self, kind: str, **data: Any) -> None:
        """Note that something happened."""
        with self.transaction() as db:
            last = db.execute("SELECT max(n) FROM attempts").fetchone()[0]
            db.table("events").insert(
                {"at": now(), "attempt": last, "kind": kind, "data": json.dumps(data)}
            )
