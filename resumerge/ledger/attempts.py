"""Attempts, events and samples: what happened while a run was worked on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from resumerge.ledger.connection import Connection, Row, now
from resumerge.ledger.validators import OF_TYPE, time
from resumerge.ledger.validity import check_values

_COUNTS = "attempt rss_low rss_high budget batch_low batch_high done left_low left_high"
_OF_GROUPS = {"at": time, "until": time, **dict.fromkeys(_COUNTS.split(), OF_TYPE[int])}
"""Validators of what a group of samples says."""


class AttemptTables(Connection):
    """Reads and writes the tables ``attempts``, ``events`` and ``samples``."""

    def attempts(self) -> list[Row]:
        """Every attempt, oldest first."""
        return self._read("attempts", rest="ORDER BY n")

    def start_attempt(self, facts: Mapping[str, Any]) -> int:
        """Open an attempt; earlier ones that never ended were killed.

        Args:
            facts: further columns of the attempt.

        Returns:
            Its number.
        """
        with self._transaction():
            self._close_killed_attempts()
            row = {"started": now(), "last_seen": now(), "units_committed": 0, **facts}
            return self._insert("attempts", row)

    def end_attempt(self, attempt: int, outcome: str, **facts: Any) -> None:
        """Close an attempt: ``done``, ``interrupted``, ``error``, ``oom`` or ``killed``."""
        self._set("attempts", {"ended": now(), "outcome": outcome, **facts}, attempt)

    def close_attempt(self, pid: int, outcome: str, peak_rss: int) -> None:
        """Close the attempt of a process that died without doing so, if there is one.

        Args:
            peak_rss: bytes; the larger of this and what the attempt recorded itself is stored.
        """
        self._change(
            "UPDATE attempts SET outcome = ?, ended = ?,"
            " peak_rss = max(coalesce(peak_rss, 0), ?) WHERE pid = ? AND ended IS NULL",
            [outcome, now(), peak_rss, pid],
        )

    def _close_killed_attempts(self) -> None:
        self._change(
            "UPDATE attempts SET outcome = ?, ended = last_seen WHERE ended IS NULL", ["killed"]
        )

    def sample(self, attempt: int, measured: Mapping[str, int]) -> None:
        """Record memory and progress at this moment."""
        with self._transaction():
            self._insert("samples", {"at": now(), "attempt": attempt, **measured})

    def event(self, kind: str, **data: Any) -> None:
        """Record that something happened."""
        with self._transaction():
            last = self._rows("SELECT max(n) AS n FROM attempts")[0]["n"]
            row = {"at": now(), "attempt": last, "kind": kind, "data": json.dumps(data)}
            self._insert("events", row)

    def events(self, *kinds: str) -> list[Row]:
        """Events of some kinds, or of all, oldest first.

        Returns:
            Rows with ``at``, ``attempt``, ``kind`` and ``data`` (decoded).
        """
        wanted = f"WHERE kind IN ({', '.join('?' * len(kinds))}) " if kinds else ""
        columns = ("at", "attempt", "kind", "data")
        rows = self._read("events", columns, f"{wanted}ORDER BY id", kinds)
        return [{**row, "data": json.loads(row["data"])} for row in rows]

    def last_event(self, *kinds: str) -> Row | None:
        """The newest event of some kinds; None where there is none."""
        found = self.events(*kinds)
        return found[-1] if found else None

    def last_sample(self) -> Row | None:
        """The newest measurement of memory and progress; None before the first batch."""
        rows = self._read("samples", rest="ORDER BY id DESC LIMIT 1")
        return rows[0] if rows else None

    def sample_groups(self, most: int) -> list[Row]:
        """Consecutive samples of one attempt, put together so that there are about `most` groups.

        Returns:
            Rows with ``attempt``, the first and last time, and the least and greatest of what was
            measured (bytes).
        """
        ends = self._rows("SELECT min(id) AS first, max(id) AS last FROM samples")[0]
        if ends["first"] is None:
            return []
        span = ends["last"] - ends["first"] + 1
        groups = self._rows(
            "SELECT attempt, min(at) AS at, max(at) AS until, min(rss) AS rss_low,"
            " max(rss) AS rss_high, max(budget) AS budget, min(batch_bytes) AS batch_low,"
            " max(batch_bytes) AS batch_high, max(bytes_done) AS done,"
            " min(available + rss) AS left_low, max(available + rss) AS left_high"
            " FROM samples GROUP BY (id - ?) * ? / ?, attempt ORDER BY min(id)",
            [ends["first"], min(most, span), span],
        )
        check_values("samples", groups, _OF_GROUPS)
        return groups
