"""The attempts, events and samples of a run: the tables that record its work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from resumerge.event_kinds import EventKind
from resumerge.ledger.connection import Connection, Row, now
from resumerge.ledger.validators import OF_TYPE, time
from resumerge.ledger.validity import check_values

_COUNTS = "attempt rss_low rss_high budget batch_low batch_high done left_low left_high"
_OF_GROUPS = {"at": time, "until": time, **dict.fromkeys(_COUNTS.split(), OF_TYPE[int])}
"""The validators of a group of samples, by column."""


@dataclass
class Attempts:
    """The table ``attempts``."""

    _db: Connection

    def all(self) -> list[Row]:
        """Return every attempt, oldest first."""
        return self._db.read("attempts", order_by="n")

    def start(self, facts: Mapping[str, Any]) -> int:
        """Open an attempt, and close earlier attempts that never ended as killed.

        Args:
            facts: further columns of the attempt.

        Returns:
            the attempt's number.
        """
        with self._db.transaction():
            self.close_killed()
            row = {"started": now(), "last_seen": now(), "units_committed": 0, **facts}
            return self._db.insert("attempts", row)

    def end(self, attempt: int, outcome: str, **facts: Any) -> None:
        """Close an attempt: ``done``, ``interrupted``, ``error``, ``oom`` or ``killed``."""
        self._db.update("attempts", attempt, {"ended": now(), "outcome": outcome, **facts})

    def close(self, pid: int, outcome: str, peak_rss: int) -> None:
        """Close the attempt of a process that died without closing it, if there is one.

        Args:
            pid: the process's id.
            outcome: the attempt's outcome, as for `end`.
            peak_rss: the most bytes of RSS; stored if it is more than the attempt itself recorded.
        """
        self._db.change(
            "UPDATE attempts SET outcome = ?, ended = ?,"
            " peak_rss = max(coalesce(peak_rss, 0), ?) WHERE pid = ? AND ended IS NULL",
            [outcome, now(), peak_rss, pid],
        )

    def close_killed(self) -> None:
        """Close every attempt that never ended, as killed at the time when it was last seen."""
        self._db.change(
            "UPDATE attempts SET outcome = 'killed', ended = last_seen WHERE ended IS NULL", ()
        )


@dataclass
class Events:
    """The table ``events``."""

    _db: Connection

    def add(self, kind: EventKind, **data: Any) -> None:
        """Record an event of the latest attempt."""
        with self._db.transaction():
            last = self._db.rows("SELECT max(n) AS n FROM attempts")[0]["n"]
            row = {"at": now(), "attempt": last, "kind": kind, "data": json.dumps(data)}
            self._db.insert("events", row)

    def all(self, *kinds: EventKind) -> list[Row]:
        """Return the events of some kinds, or every event, oldest first.

        Returns:
            Rows with ``at``, ``attempt``, ``kind`` and ``data`` (decoded).
        """
        wanted = f"kind IN ({', '.join('?' * len(kinds))})" if kinds else None
        columns = ("at", "attempt", "kind", "data")
        rows = self._db.read("events", columns, wanted, kinds, order_by="id")
        return [{**row, "data": json.loads(row["data"])} for row in rows]

    def last(self, *kinds: EventKind) -> Row | None:
        """Return the newest event of some kinds; None if there is none."""
        events = self.all(*kinds)
        return events[-1] if events else None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A measurement of memory and progress, in bytes.

    Args:
        rss: the RSS of this process.
        available: the memory that the machine, or the container, has left.
        budget: the RSS that this process may have.
        batch_bytes: the uncommitted limit; 0 before the governor has set it, or if tasks of a
            cluster have their own.
        bytes_done: the output that is committed.
    """

    rss: int
    available: int
    budget: int
    batch_bytes: int
    bytes_done: int


@dataclass
class Samples:
    """The table ``samples``: memory and progress at a moment."""

    _db: Connection

    def add(self, attempt: int, sample: Sample) -> None:
        """Record memory and progress at this moment."""
        with self._db.transaction():
            self._db.insert("samples", {"at": now(), "attempt": attempt, **asdict(sample)})

    def last(self) -> Row | None:
        """Return the newest sample; None before the first batch."""
        rows = self._db.read("samples", order_by="id DESC", limit=1)
        return rows[0] if rows else None

    def groups(self, most: int) -> list[Row]:
        """Return consecutive samples of one attempt in groups, about `most` of them.

        Returns:
            rows with ``attempt``, the first and last time, and the least and greatest of each
            measured quantity (bytes).
        """
        ends = self._db.rows("SELECT min(id) AS first, max(id) AS last FROM samples")[0]
        if ends["first"] is None:
            return []
        span = ends["last"] - ends["first"] + 1
        groups = self._db.rows(
            "SELECT attempt, min(at) AS at, max(at) AS until, min(rss) AS rss_low,"
            " max(rss) AS rss_high, max(budget) AS budget, min(batch_bytes) AS batch_low,"
            " max(batch_bytes) AS batch_high, max(bytes_done) AS done,"
            " min(available + rss) AS left_low, max(available + rss) AS left_high"
            " FROM samples GROUP BY (id - ?) * ? / ?, attempt ORDER BY min(id)",
            [ends["first"], min(most, span), span],
        )
        check_values("samples", groups, _OF_GROUPS)
        return groups
