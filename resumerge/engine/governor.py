"""Watches memory and sets the batch size: halved under pressure, raised again in calm.

The batch size is how many bytes of output may be computed or written without being committed.
It bounds the blocks in flight (memory of this process), dirty pages (memory of the machine), and
what a kill can cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import psutil

from resumerge.host.memory import Memory, measure_memory

LARGEST_BATCH = 128 << 20
"""Bytes. Larger batches make commits no cheaper and kills more expensive."""

SMALLEST_BATCH = 4 << 20
"""Bytes: a few blocks."""

SAMPLE_SECONDS = 0.25
CALM_SECONDS = 3.0
MARGIN = 0.05
"""Share of the memory's total that stays free for others."""

NEAR_BUDGET = 0.92
"""Share of the budget above which this process itself is the pressure."""

Event = Callable[..., None]


class Governor:
    """Samples memory in a thread while used as a context manager."""

    def __init__(
        self,
        budget: int,
        event: Event,
        measure: Callable[[], Memory] = measure_memory,
        rss: Callable[[], int] | None = None,
    ) -> None:
        """
        Args:
            budget: bytes of RSS that this process may have.
            event: called with a kind and facts at every change of the batch size.
        """
        self.budget = budget
        self.batch_bytes = LARGEST_BATCH
        self.peak_rss = 0
        self.rss = 0
        self.available = 0
        self._event, self._measure = event, measure
        self._read_rss = rss or (lambda: psutil.Process().memory_info().rss)
        self._calm_since = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="governor", daemon=True)

    def __enter__(self) -> Governor:
        self.look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.look()

    def look(self) -> None:
        """Measure once and adjust the batch size."""
        memory = self._measure()
        self.rss, self.available = self._read_rss(), memory.available
        self.peak_rss = max(self.peak_rss, self.rss)
        reason = self._pressure(memory)
        now = time.monotonic()
        if reason:
            self._calm_since = now
            self._set(max(SMALLEST_BATCH, self.batch_bytes // 2), "batch_lowered", reason)
        elif now - self._calm_since >= CALM_SECONDS:
            self._calm_since = now
            self._set(
                min(LARGEST_BATCH, self.batch_bytes + LARGEST_BATCH // 8), "batch_raised", "calm"
            )

    def _pressure(self, memory: Memory) -> str:
        if self.rss > self.budget * NEAR_BUDGET:
            return "this process is near its budget"
        if memory.available < memory.total * MARGIN:
            return "the machine is short of memory"
        return ""

    def _set(self, batch_bytes: int, kind: str, reason: str) -> None:
        if batch_bytes != self.batch_bytes:
            self._event(
                kind,
                reason=reason,
                before=self.batch_bytes,
                after=batch_bytes,
                rss=self.rss,
                available=self.available,
            )
            self.batch_bytes = batch_bytes
