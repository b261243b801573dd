"""Memory, batch size and speed of a run over time, from the samples in its ledger, for plots."""

from __future__ import annotations

import sqlite3
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from resumerge.ledger import Ledger

BETWEEN_SAMPLES = 3.0
"""Seconds since the last sample of a live attempt that do not yet count as zero throughput."""

MOST_POINTS = 600
"""The most points of a history. A long run has 100,000 samples, more than a plot has columns."""


@dataclass(frozen=True)
class Point:
    """The extremes of one sample, or of several consecutive samples of one attempt.

    Args:
        at: the time of the first sample, in seconds since the epoch.
        until: the time of the last sample, in seconds since the epoch.
        rss_low: least RSS, in bytes.
        rss_high: largest RSS, in bytes.
        budget: limit of the attempt's RSS, in bytes.
        batch_low: least uncommitted limit, in bytes (`batch_bytes` of the samples).
        batch_high: largest uncommitted limit, in bytes.
        done: bytes of output that were committed at the last sample.
        left_low: least available memory plus the worker's own RSS, in bytes.
        left_high: most available memory plus the worker's own RSS, in bytes.
    """

    at: float
    until: float
    rss_low: int
    rss_high: int
    budget: int
    batch_low: int
    batch_high: int
    done: int
    left_low: int
    left_high: int


@dataclass(frozen=True)
class Cell:
    """A column of a plot: the extremes of its samples, and the mean rate.

    A column without a sample repeats the last sample before it. Before the first sample, the
    extremes are None.

    Args:
        rate: bytes of output committed per second.
    """

    rss_low: int | None = None
    rss_high: int | None = None
    budget: int | None = None
    batch_low: int | None = None
    batch_high: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Lifetime:
    """One attempt over time.

    Args:
        started: start of the attempt, in seconds since the epoch.
        ended: end of the attempt, in seconds since the epoch. For a live attempt, the later of its
            last sample's time and `BETWEEN_SAMPLES` before now.
        outcome: the outcome; None for a live attempt.
        done_before: bytes of output that were committed at the start.
        done_after: bytes of output that were committed at the end.
        peak: largest RSS in bytes, counted by the kernel. Samples may have missed it.
    """

    n: int
    started: float
    ended: float
    outcome: str | None
    done_before: int
    done_after: int
    points: tuple[Point, ...]
    peak: int = 0

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    def cells(self, count: int) -> list[Cell]:
        """Return the attempt as `count` cells of equal time.

        Every extreme of a sample is in a cell. The sum of rate times width over all cells is the
        number of bytes that the attempt committed.
        """
        if not self.points or count < 1:
            return [Cell()] * count
        width = (self.seconds / count) or 1.0
        points_of_columns: list[list[Point]] = [[] for _ in range(count)]
        for point in self.points:
            column = int((point.at - self.started) / width)
            points_of_columns[min(count - 1, max(0, column))].append(point)
        knots = self._knots()
        committed_at_edges = [
            _between(knots, self.started + width * column) for column in range(count + 1)
        ]
        cells = []
        last_point: Point | None = None
        for column, points_inside in enumerate(points_of_columns):
            points = points_inside or ([last_point] if last_point else [])
            rate = max(0.0, committed_at_edges[column + 1] - committed_at_edges[column]) / width
            cells.append(_cell(points, rate) if points else Cell(rate=rate))
            last_point = points[-1] if points else None
        return cells

    def _knots(self) -> list[tuple[float, float]]:
        """Return (time, bytes committed) at each sample with new commits, and at start and end."""
        fewest_done = min(point.done for point in self.points)
        knots = [(self.started, float(min(self.done_before, fewest_done)))]
        for point in self.points:
            if point.done > knots[-1][1]:
                knots.append((max(point.until, knots[-1][0]), float(point.done)))
        last_knot = knots[-1]
        return [*knots, (max(self.ended, last_knot[0]), max(float(self.done_after), last_knot[1]))]


@dataclass(frozen=True)
class History:
    """Every attempt of a run over time, in order."""

    lifetimes: tuple[Lifetime, ...] = ()
    of_driver: bool = False
    """Whether the samples are those of a cluster's driver, and not of the tasks that merged."""

    @property
    def points(self) -> list[Point]:
        return [point for lifetime in self.lifetimes for point in lifetime.points]

    @property
    def peak(self) -> int:
        """The largest RSS in bytes: counted by the kernel, or sampled if there is no count yet."""
        counted = 0 if self.of_driver else max((life.peak for life in self.lifetimes), default=0)
        return counted or max((point.rss_high for point in self.points), default=0)


def history_of(run: Mapping[str, Any]) -> History:
    """Return the history of a run from its ledger; an empty history if the ledger is unreadable.

    Args:
        run: the document of a run, from ``resumerge status --json``. It names the ledger.
    """
    try:
        ledger = Ledger(Path(run["ledger"] or ""), read_only=True)
    except sqlite3.DatabaseError:
        return History()
    try:
        return _history(run["attempts"], ledger, of_driver=bool(run["cluster"]))
    except sqlite3.DatabaseError:
        return History()
    finally:
        ledger.close()


def _history(attempts: Sequence[Mapping[str, Any]], ledger: Ledger, *, of_driver: bool) -> History:
    points_by_attempt: dict[int, list[Point]] = {}
    bytes_committed = 0
    for attempt, point in _points(ledger):
        points_by_attempt.setdefault(attempt, []).append(point)
    lifetimes = []
    for row in attempts:
        attempt_points = tuple(points_by_attempt.get(row["n"], ()))
        start_time = seconds_of(row["started"])
        last_known = max([start_time, *(point.until for point in attempt_points[-1:])])
        end_time = seconds_of(row["ended"]) if row["ended"] else time.time() - BETWEEN_SAMPLES
        end_time = max(last_known, end_time)
        # The last commits may be newer than the last sample. The row of the attempt counts them.
        committed_before = bytes_committed
        bytes_committed += row["bytes_committed"]
        if attempt_points:
            # Damage may be found after the first sample.
            fewest_done = min(point.done for point in attempt_points)
            bytes_committed = max(
                attempt_points[-1].done, min(committed_before, fewest_done) + row["bytes_committed"]
            )
        lifetimes.append(
            Lifetime(
                row["n"],
                start_time,
                end_time,
                row["outcome"],
                committed_before,
                bytes_committed,
                attempt_points,
                row["peak_rss"],
            )
        )
    return History(tuple(lifetimes), of_driver)


def _points(ledger: Ledger) -> list[tuple[int, Point]]:
    return [(group.pop("attempt"), _point(**group)) for group in ledger.samples.groups(MOST_POINTS)]


def _point(at: str, until: str, **numbers: int | None) -> Point:
    measured = {name: number or 0 for name, number in numbers.items()}
    return Point(seconds_of(at), seconds_of(until), **measured)


def seconds_of(at: str) -> float:
    """Return a time of the ledger, in ISO format, as seconds since the epoch."""
    return datetime.fromisoformat(at).timestamp()


def attempt_seconds(attempt: Mapping[str, Any]) -> float:
    """Return the seconds from the start of an attempt to its end, or to now if it is running.

    Args:
        attempt: one of the attempts of a run's document.
    """
    ended = seconds_of(attempt["ended"]) if attempt["ended"] else time.time()
    return max(0.0, ended - seconds_of(attempt["started"]))


def _between(knots: Sequence[tuple[float, float]], at: float) -> float:
    """Return the linear interpolation between knots. Two knots at the same time are a jump."""
    next_knot = bisect_right(knots, at, key=lambda knot: knot[0])
    if next_knot == 0:
        return knots[0][1]
    if next_knot == len(knots):
        return knots[-1][1]
    (t0, y0), (t1, y1) = knots[next_knot - 1], knots[next_knot]
    return y0 + (y1 - y0) * (at - t0) / (t1 - t0)


def _cell(points: Sequence[Point], rate: float) -> Cell:
    return Cell(
        min(point.rss_low for point in points),
        max(point.rss_high for point in points),
        max(point.budget for point in points),
        min(point.batch_low for point in points),
        max(point.batch_high for point in points),
        rate,
    )
