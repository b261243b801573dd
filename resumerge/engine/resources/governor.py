"""Watches memory and sets the batch size: halved under pressure, raised again in calm.

The batch size is how many bytes of output may be computed or written without being committed.
It bounds the blocks in flight (memory of this process), dirty pages (memory of the machine), and
what a kill can cost. Where not even one block fits, `wait_for_room` holds the engine.
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
from resumerge.errors import Resumable
from resumerge.host.memory import Memory, MemoryGauge, rss
from resumerge.planning.estimates.memory import MemoryNeed

_log = logging.getLogger(__name__)

LARGEST_BATCH = 128 << 20
"""Bytes. Larger batches make commits no cheaper and kills more expensive."""

SMALLEST_BATCH = 4 << 20
"""Bytes: a few blocks."""

BATCH_SHARE = 1 / 8
"""Of all memory, at most, may be a batch: dirty pages cannot be dropped until they are written."""

SAMPLE_SECONDS = 0.1
CALM_SECONDS = 3.0
REMEMBERED_SECONDS = 60.0
"""How far back what other processes had is compared with what they have."""

NOTE_SECONDS = 60.0
"""Between two notes that the run still waits."""

MARGIN, LARGEST_MARGIN = 0.05, 1 << 30
"""What stays free for others: a share of all memory; no more bytes than this need be free."""

STALLED = 0.2
"""Share of the time in which everything waits for memory, from which on that is pressure."""

Event = Callable[..., None]


def margin(total: int) -> int:
    """Bytes that stay free for others, of so many."""
    return int(min(total * MARGIN, LARGEST_MARGIN))


class Governor:
    """Samples memory in a thread while used as a context manager."""

    def __init__(
        self,
        budget: int,
        need: MemoryNeed,
        event: Event,
        note: Callable[[str], None] = lambda text: None,
        patience: float = 600.0,
        measure: Callable[[], Memory] | None = None,
        rss: Callable[[], int] = rss,
    ) -> None:
        """
        Args:
            budget: bytes of RSS that this process may have.
            event: called with a kind and facts at every change of the batch size, and when the
                run waits and goes on.
            note: told what a person should know.
            patience: seconds to wait for room for one block.
        """
        self.budget, self.need = budget, need
        self.batch_bytes = LARGEST_BATCH
        self.peak_rss = self.rss = 0
        self.memory = Memory(0, 0)
        self._event, self._note, self._patience = event, note, patience
        self._measure = measure or MemoryGauge().measure
        self._read_rss = rss
        self._calm_since = self._pressed_at = float("-inf")
        self._others: deque[_Others] = deque()
        self._over = threading.Event()
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="governor", daemon=True)

    def __enter__(self) -> Governor:
        self._sample(time.monotonic())
        fitting = self.batch_bytes
        while fitting > SMALLEST_BATCH and not self._fits(fitting):
            fitting = max(SMALLEST_BATCH, fitting // 2)
        self._set(fitting, "batch_lowered", self._shortage())
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def cramped(self) -> bool:
        """Whether not even one block fits."""
        growth = max(0, self.need.least_rss - self.rss)
        return self.memory.available - margin(self.memory.total) // 2 < growth

    @property
    def cache_is_scarce(self) -> bool:
        """Whether page cache that is not needed again should be dropped.

        Not in plenty: whoever reads the files next, finds them in memory.
        """
        pressed = time.monotonic() - self._pressed_at < REMEMBERED_SECONDS
        return pressed or self.need.traffic > self.memory.total // 2

    @property
    def cache_room(self) -> int:
        """Bytes that page cache may take without being in the way of a batch."""
        growth = max(0, self.need.peak_rss - self.rss)
        room = self.memory.available - margin(self.memory.total) - growth - self.batch_bytes
        return max(0, room)

    def wait_for_room(self, stop: StopRequest) -> None:
        """Return when a block fits, or a signal asks to stop; at once as a rule.

        Raises:
            Resumable: there was no room for as long as the patience lasts.
        """
        if not self.cramped:
            return
        started = told = time.monotonic()
        self._tell("waiting", self._shortage())
        self._note(f"Waiting for memory: {self._shortage()}; {self._wanted()}")
        give_back_freed_memory()
        while self.cramped and not stop.requested:
            with self._looked:
                self._looked.wait(SAMPLE_SECONDS * 2)
            now = time.monotonic()
            if now - started > self._patience:
                self._tell("gave_up_waiting", self._shortage(), seconds=round(now - started, 1))
                raise Resumable("memory", self._advice(now - started))
            if now - told > NOTE_SECONDS:
                told = now
                self._note(f"Still waiting for memory: {self._shortage()}; {self._wanted()}")
        seconds = round(time.monotonic() - started, 1)
        self._tell("went_on", f"there is room again after {seconds} s", seconds=seconds)

    def look(self) -> None:
        """Measure once and adjust the batch size."""
        now = time.monotonic()
        self._sample(now)
        reason = self._pressure()
        if reason:
            self._calm_since = self._pressed_at = now
            self._set(max(SMALLEST_BATCH, self.batch_bytes // 2), "batch_lowered", reason)
        elif now - self._calm_since >= CALM_SECONDS:
            self._calm_since = now
            larger = min(LARGEST_BATCH, self.batch_bytes + LARGEST_BATCH // 8)
            if self._fits(larger):
                self._set(larger, "batch_raised", self._relief())

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.look()
            with self._looked:
                self._looked.notify_all()

    def _sample(self, now: float) -> None:
        self.memory, self.rss = self._measure(), self._read_rss()
        self.peak_rss = max(self.peak_rss, self.rss)
        taken = self._taken_by_others()
        if not self._others or now - self._others[-1].at >= 1.0:
            self._others.append(_Others(now, taken, taken))
        latest = self._others[-1]
        latest.least, latest.most = min(latest.least, taken), max(latest.most, taken)
        while now - self._others[0].at > REMEMBERED_SECONDS:
            self._others.popleft()

    def _fits(self, batch_bytes: int) -> bool:
        """Whether there is room for a batch, and for what this process has yet to grow by."""
        growth = max(0, self.need.peak_rss - self.rss)
        room = self.memory.available - margin(self.memory.total) - growth
        return batch_bytes <= min(room, self.memory.total * BATCH_SHARE)

    def _pressure(self) -> str:
        """Why the batch should be smaller; empty where it need not be."""
        if self.rss > self.budget:
            return f"this process has {_size(self.rss)}, its budget is {_size(self.budget)}"
        if not self._fits(self.batch_bytes):
            return self._shortage()
        if self.memory.stalled > STALLED:
            return f"everything waited for memory {self.memory.stalled:.0%} of the time"
        return ""

    def _shortage(self) -> str:
        memory = self.memory
        left = f"{memory.bound} has {_size(memory.available)} left of {_size(memory.total)}"
        took = self._taken_by_others() - min(other.least for other in self._others)
        if took > self._noise():
            return f"another process took {_size(took)}; {left}"
        return left

    def _relief(self) -> str:
        gave = max(other.most for other in self._others) - self._taken_by_others()
        if gave > self._noise():
            return f"another process gave back {_size(gave)}"
        return f"calm for {CALM_SECONDS:.0f} s"

    def _taken_by_others(self) -> int:
        """Bytes; with them this process's own dirty pages, up to a batch."""
        return self.memory.total - self.memory.available - self.rss

    def _noise(self) -> int:
        """Bytes below which a change in what others have may be this process's own doing."""
        return self.batch_bytes + margin(self.memory.total)

    def _wanted(self) -> str:
        wanted = margin(self.memory.total) // 2 + max(0, self.need.least_rss - self.rss)
        return f"{_size(wanted)} are needed to go on"

    def _advice(self, seconds: float) -> str:
        return (
            f"No memory for even one block in {seconds:.0f} s: {self._shortage()}; "
            f"{self._wanted()}. End other programs, or give this one more memory, then resume."
        )

    def _set(self, batch_bytes: int, kind: str, reason: str) -> None:
        if batch_bytes != self.batch_bytes:
            before, self.batch_bytes = self.batch_bytes, batch_bytes
            self._tell(kind, reason, before=before, after=batch_bytes)

    def _tell(self, kind: str, reason: str, **facts: Any) -> None:
        available = self.memory.available
        _log.info("%s: %s %s", kind, reason, facts)
        self._event(kind, reason=reason, **facts, rss=self.rss, available=available)


@dataclass
class _Others:
    """What other processes had within one second: when, and bytes."""

    at: float
    least: int
    most: int


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"
