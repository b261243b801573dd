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
        """Add an attempt. Earlier attempts that never ended are closed as killed.

        Args:
            facts: values of further columns of the attempt, by name.

        Returns:
            the attempt's number.
        """
        with self._db.transaction():
            self.close_killed()
            row = {"started": now(), "last_seen": now(), "units_committed": 0, **facts}
            return self._db.insert("attempts", row)

    def end(self, attempt: int, outcome: str, **facts: Any) -> None:
        """Close an attempt as ``done``, ``interrupted``, ``error``, ``oom`` or ``killed``."""
        self._db.update("attempts", attempt, {"ended": now(), "outcome": outcome, **facts})

    def close(self, pid: int, outcome: str, peak_rss: int) -> None:
        """Close the open attempt of a process that died, if it has one.

        Args:
            pid: the process id, by which the open attempt is found.
            outcome: the attempt's outcome, as for `end`.
            peak_rss: the peak RSS in bytes, stored if it exceeds the peak that is recorded.
        """
        self._db.change(
            "UPDATE attempts SET outcome = ?, ended = ?,"
            " peak_rss = max(coalesce(peak_rss, 0), ?) WHERE pid = ? AND ended IS NULL",
            [outcome, now(), peak_rss, pid],
        )

    def close_killed(self) -> None:
        """Close every open attempt as killed, at the time when it was last seen."""
        self._db.change(
            "UPDATE attempts SET outcome = 'killed', ended = last_seen WHERE ended IS NULL", ()
        )


@dataclass
class Events:
    """The table ``events``."""

    _db: Connection

    def add(self, kind: EventKind, **data: Any) -> None:
        """Record an event, in the latest attempt."""
        with self._db.transaction():
            attempt = self._db.rows("SELECT max(n) AS n FROM attempts")[0]["n"]
            row = {"at": now(), "attempt": attempt, "kind": kind, "data": json.dumps(data)}
            self._db.insert("events", row)

    def all(self, *kinds: EventKind) -> list[Row]:
        """Return the events of these kinds, or all events if no kind is passed, oldest first.

        Returns:
            rows with ``at``, ``attempt``, ``kind`` and ``data`` (decoded JSON).
        """
        condition = f"kind IN ({', '.join('?' * len(kinds))})" if kinds else None
        columns = ("at", "attempt", "kind", "data")
        rows = self._db.read("events", columns, condition, kinds, order_by="id")
        return [{**row, "data": json.loads(row["data"])} for row in rows]

    def last(self, *kinds: EventKind) -> Row | None:
        """Return the newest event of these kinds, or None."""
        events = self.all(*kinds)
        return events[-1] if events else None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A measurement of memory and progress, in bytes.

    Args:
        rss: the RSS of the process that records the sample.
        available: the memory that is available on the machine or in the container.
        budget: the limit of this process's RSS.
        batch_bytes: the uncommitted limit; 0 before the governor has set the limit, and in the
            driver of a cluster, whose tasks have their own limits.
        bytes_done: the committed bytes of output, of all attempts together.
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
        """Record a sample with the present time."""
        with self._db.transaction():
            self._db.insert("samples", {"at": now(), "attempt": attempt, **asdict(sample)})

    def last(self) -> Row | None:
        """Return the newest sample; None before the first batch."""
        rows = self._db.read("samples", order_by="id DESC", limit=1)
        return rows[0] if rows else None

    def groups(self, most: int) -> list[Row]:
        """Summarise the samples in about `most` groups of consecutive samples of one attempt.

        Returns:
            rows with ``attempt``, the first and last time, and the smallest or largest values of
            the measured quantities (bytes).
        """
        id_range = self._db.rows("SELECT min(id) AS first, max(id) AS last FROM samples")[0]
        if id_range["first"] is None:
            return []
        id_count = id_range["last"] - id_range["first"] + 1
        groups = self._db.rows(
            "SELECT attempt, min(at) AS at, max(at) AS until, min(rss) AS rss_low,"
            " max(rss) AS rss_high, max(budget) AS budget, min(batch_bytes) AS batch_low,"
            " max(batch_bytes) AS batch_high, max(bytes_done) AS done,"
            " min(available + rss) AS left_low, max(available + rss) AS left_high"
            " FROM samples GROUP BY (id - ?) * ? / ?, attempt ORDER BY min(id)",
            [id_range["first"], min(most, id_count), id_count],
        )
        check_values("samples", groups, _OF_GROUPS)
        return groups
