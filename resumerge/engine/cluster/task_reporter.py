"""The sender of a task's heartbeats, which the driver reads."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from resumerge.engine.cluster.exchange.base import Beat, TaskEndpoint
from resumerge.engine.cluster.outcomes import Node
from resumerge.engine.reporter import ProgressUpdate, Reporter
from resumerge.sources.remote.prefetch import DownloadProgress


class TaskReporter(Reporter):
    """A reporter that sends heartbeats while blocks are computed.

    Args:
        endpoint: the task's side of the exchange, whose working folder exists.
        node: the machine that heartbeats name.
        inner: a reporter that also receives heartbeats and the texts of waits; None outside the
            driver.

    Raises:
        TaskAbandoned: by every method that sends a heartbeat, after the task was given up.
    """

    def __init__(self, endpoint: TaskEndpoint, node: Node, inner: Reporter | None = None) -> None:
        self._endpoint, self._inner = endpoint, inner or Reporter()
        self.last = Beat(node)
        self._lock = threading.Lock()
        self._sent = float("-inf")
        self.heartbeat()

    def began(self, attempt: int, budget: int) -> None:
        self.last = replace(self.last, budget=budget)

    def heartbeat(self) -> None:
        self._inner.heartbeat()
        with self._lock:
            now = time.monotonic()
            if now - self._sent < self._endpoint.beat_seconds:
                return
            self._sent = now
            self.last = replace(self.last, count=self.last.count + 1)
            self._endpoint.beat(self.last)

    def doing(self, what: str) -> None:
        self.heartbeat()

    def reading(self, done: int, total: int) -> None:
        self.heartbeat()

    def fetching(self, fetched: DownloadProgress) -> None:
        self.heartbeat()

    def progressed(self, progressed: ProgressUpdate) -> None:
        self.last = replace(self.last, nbytes=progressed.bytes_done)
        self.heartbeat()

    def waiting(self, text: str) -> None:
        self._inner.waiting(text)
        self.heartbeat()
