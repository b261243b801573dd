"""The governor watches memory, and halves or raises the uncommitted limit.

The uncommitted limit is the most bytes of output that may be computed or written but not committed.
It limits the blocks in flight (memory of this process), the dirty pages (memory of the machine) and
the work that a kill can cost. If not even one block fits in memory, `wait_for_memory` blocks the
engine.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from resumerge.engine.resources.allocator import give_back_freed_memory
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.host.memory import Memory, MemoryGauge, rss
from resumerge.planning.estimates.memory import MemoryNeed
from resumerge.sizes import show_size
from resumerge.tensors.target import BLOCK_RUN_BYTES

_log = logging.getLogger(__name__)

LARGEST_UNCOMMITTED_LIMIT = 128 << 20
"""Bytes of the largest uncommitted limit for up to four threads. A larger limit would make kills
more expensive without making commits cheaper."""

SMALLEST_UNCOMMITTED_LIMIT = BLOCK_RUN_BYTES
"""Bytes of the smallest uncommitted limit: one block run."""

UNCOMMITTED_LIMIT_SHARE = 1 / 8
"""The largest uncommitted limit as a share of all memory, because dirty pages cannot be dropped
before they are written."""

LOWERED_TO = 1 / 2
"""The share of the uncommitted limit that is left after memory pressure."""

RAISED_BY = 1 / 8
"""The share of the largest uncommitted limit by which the limit is raised."""

SAMPLE_SECONDS = 0.1
"""Seconds between two measurements of memory."""

CALM_SECONDS = 3.0
"""Seconds without pressure after which the uncommitted limit is raised."""

REMEMBERED_SECONDS = 60.0
"""Seconds for which memory pressure and the memory of other processes are remembered."""

MARGIN_SHARE = 0.05
"""The share of all memory that stays free for other processes."""

LARGEST_MARGIN = 1 << 30
"""The most bytes of memory that stay free for other processes."""

STALLED = 0.2
"""The share of time, with all tasks waiting for memory, above which memory is under pressure."""


def largest_uncommitted_limit(threads: int) -> int:
    """Return the largest uncommitted limit in bytes; a quarter of it keeps all threads busy."""
    return LARGEST_UNCOMMITTED_LIMIT * max(4, threads) // 4


def margin(total: int) -> int:
    """Return the bytes of `total` memory that stay free for other processes."""
    return int(min(total * MARGIN_SHARE, LARGEST_MARGIN))


def _lowered(limit: int) -> int:
    return max(SMALLEST_UNCOMMITTED_LIMIT, int(limit * LOWERED_TO))


class Governor:
    """A watch over memory; as a context manager it samples memory in a thread.

    Args:
        budget: bytes of RSS that this process may use.
        need: the memory that the merge is predicted to take from now on.
        record_event: called with an event's kind and facts when the uncommitted limit changes, and
            when a wait for memory begins or ends.
        waiting: called during a wait, several times a second, with a text for the user
            (`Reporter.waiting`).
        memory_wait: the longest wait in seconds until one block fits.
        measure: returns the memory of the machine; None to read the kernel's figures.
        rss: returns the RSS of this process in bytes.
        clock: returns seconds, monotonic.
        threads: the number of threads that compute blocks.

    Attributes:
        uncommitted_limit: the most bytes of output that may be uncommitted, halved under pressure.
        memory: the last measurement of the machine's memory.
        rss: this process's RSS at the last measurement, in bytes.
        peak_rss: the highest RSS that was measured, in bytes.
    """

    def __init__(
        self,
        budget: int,
        need: MemoryNeed,
        *,
        record_event: Callable[..., None],
        waiting: Callable[[str], None] = lambda text: None,
        memory_wait: float = 600.0,
        measure: Callable[[], Memory] | None = None,
        rss: Callable[[], int] = rss,
        clock: Callable[[], float] = time.monotonic,
        threads: int = 1,
    ) -> None:
        self.budget, self.need = budget, need
        self.uncommitted_limit = self._largest = largest_uncommitted_limit(threads)
        self.peak_rss = self.rss = 0
        self.memory = Memory(total=0, available=0)
        self._record_event, self._waiting, self._memory_wait = record_event, waiting, memory_wait
        self._measure = measure or MemoryGauge().measure
        self._read_rss, self._clock = rss, clock
        self._calm_since = self._pressed_at = float("-inf")
        self._others: deque[_Others] = deque()
        self._closed = threading.Event()
        self._measured = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="governor", daemon=True)

    def __enter__(self) -> Governor:
        self._sample(self._clock())
        limit = self.uncommitted_limit
        while limit > SMALLEST_UNCOMMITTED_LIMIT and not self._fits(limit):
            limit = _lowered(limit)
        self._set(limit, EventKind.LIMIT_LOWERED, self._shortage())
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._closed.set()
        self._thread.join()

    @property
    def is_cramped(self) -> bool:
        """Whether not even one block fits in memory."""
        growth = max(0, self.need.least_rss - self.rss)
        return self.memory.available - margin(self.memory.total) // 2 < growth

    @property
    def cache_is_scarce(self) -> bool:
        """Whether pages that this run no longer needs should be dropped from the page cache.

        If memory is plentiful, the pages stay for the next program that reads these files.
        """
        recently_pressed = self._clock() - self._pressed_at < REMEMBERED_SECONDS
        return recently_pressed or self.need.traffic > self.memory.total // 2

    @property
    def cache_room(self) -> int:
        """Bytes that the page cache may take without displacing uncommitted output."""
        growth = max(0, self.need.peak_rss - self.rss)
        room = self.memory.available - margin(self.memory.total) - growth - self.uncommitted_limit
        return max(0, room)

    def wait_for_memory(self, stop: StopRequest) -> None:
        """Wait until a block fits in memory or a signal arrives; usually return at once.

        Raises:
            Resumable: no block fitted in memory for `memory_wait` seconds.
        """
        if not self.is_cramped:
            return
        wait_started = self._clock()
        self._record(EventKind.MEMORY_AWAITED, self._shortage())
        give_back_freed_memory()
        while (is_cramped := self.is_cramped) and not stop.requested:
            self._waiting(f"Waiting for memory: {self._shortage()}; {self._needed_memory()}")
            with self._measured:
                self._measured.wait(SAMPLE_SECONDS * 2)
            now = self._clock()
            if now - wait_started > self._memory_wait:
                self._record(
                    EventKind.MEMORY_GIVEN_UP,
                    self._shortage(),
                    seconds=round(now - wait_started, 1),
                )
                raise Resumable(Reason.MEMORY, self._advice(now - wait_started))
        waited_seconds = round(self._clock() - wait_started, 1)
        self._record(
            EventKind.MEMORY_WAIT_ENDED,
            f"{self._shortage()}; a signal ended the wait"
            if is_cramped
            else f"memory is available again after {waited_seconds} s",
            seconds=waited_seconds,
        )

    def adjust(self) -> None:
        """Measure memory once, and lower or raise the uncommitted limit."""
        now = self._clock()
        self._sample(now)
        reason = self._pressure()
        if reason:
            self._calm_since = self._pressed_at = now
            self._set(_lowered(self.uncommitted_limit), EventKind.LIMIT_LOWERED, reason)
        elif now - self._calm_since >= CALM_SECONDS:
            self._calm_since = now
            larger_limit = min(
                self._largest, self.uncommitted_limit + int(self._largest * RAISED_BY)
            )
            if self._fits(larger_limit):
                self._set(larger_limit, EventKind.LIMIT_RAISED, self._relief())

    def _watch(self) -> None:
        while not self._closed.wait(SAMPLE_SECONDS):
            self.adjust()
            with self._measured:
                self._measured.notify_all()

    def _sample(self, now: float) -> None:
        self.memory, self.rss = self._measure(), self._read_rss()
        self.peak_rss = max(self.peak_rss, self.rss)
        bytes_of_others = self._bytes_of_others()
        if not self._others or now - self._others[-1].at >= 1.0:
            self._others.append(_Others(now, bytes_of_others, bytes_of_others))
        latest_second = self._others[-1]
        latest_second.least = min(latest_second.least, bytes_of_others)
        latest_second.most = max(latest_second.most, bytes_of_others)
        while now - self._others[0].at > REMEMBERED_SECONDS:
            self._others.popleft()

    def _fits(self, limit: int) -> bool:
        """Return whether memory has room for this much uncommitted output and for this process.

        The process may still grow to its predicted peak.

        Args:
            limit: bytes of uncommitted output.
        """
        growth = max(0, self.need.peak_rss - self.rss)
        room = self.memory.available - margin(self.memory.total) - growth
        return limit <= min(room, self.memory.total * UNCOMMITTED_LIMIT_SHARE)

    def _pressure(self) -> str:
        """Return the reason to lower the uncommitted limit; empty if there is none."""
        if self.rss > self.budget:
            return (
                f"this process uses {show_size(self.rss)}, its budget is {show_size(self.budget)}"
            )
        if not self._fits(self.uncommitted_limit):
            return self._shortage()
        if self.memory.stalled > STALLED:
            return (
                f"all processes were stalled {self.memory.stalled:.0%} of the time, waiting for "
                "memory"
            )
        return ""

    def _shortage(self) -> str:
        # The main thread asks, too, while the governor's thread appends.
        recent_seconds = tuple(self._others)
        newly_taken_bytes = self._bytes_of_others() - min(second.least for second in recent_seconds)
        if newly_taken_bytes > self._noise():
            return f"other processes took {show_size(newly_taken_bytes)}; {self.memory}"
        return str(self.memory)

    def _relief(self) -> str:
        freed_bytes = max(second.most for second in self._others) - self._bytes_of_others()
        if freed_bytes > self._noise():
            return f"other processes freed {show_size(freed_bytes)}"
        return f"no memory pressure for {CALM_SECONDS:.0f} s"

    def _bytes_of_others(self) -> int:
        """Return the bytes of other processes, and of the dirty pages of this process's output."""
        return self.memory.total - self.memory.available - self.rss

    def _noise(self) -> int:
        """Return the bytes by which this process may change `_bytes_of_others`."""
        return self.uncommitted_limit + margin(self.memory.total)

    def _needed_memory(self) -> str:
        needed_bytes = margin(self.memory.total) // 2 + max(0, self.need.least_rss - self.rss)
        return f"{show_size(needed_bytes)} is needed to continue"

    def _advice(self, seconds: float) -> str:
        return (
            f"Not enough memory to continue, after {seconds:.0f} s of waiting: "
            f"{self._shortage()}; {self._needed_memory()}. Close other programs, or give "
            "this machine or container more memory, then resume."
        )

    def _set(self, limit: int, kind: EventKind, reason: str) -> None:
        if limit != self.uncommitted_limit:
            limit_before, self.uncommitted_limit = self.uncommitted_limit, limit
            self._record(kind, reason, before=limit_before, after=limit)

    def _record(self, kind: EventKind, reason: str, **facts: Any) -> None:
        available = self.memory.available
        _log.info("%s: %s %s", kind, reason, facts)
        self._record_event(kind, reason=reason, **facts, rss=self.rss, available=available)


@dataclass
class _Others:
    """The least and the most memory of other processes within one second.

    Args:
        at: the start of the second, on the governor's clock.
        least: the fewest bytes that other processes had in this second.
        most: the most bytes that other processes had in this second.
    """

    at: float
    least: int
    most: int
