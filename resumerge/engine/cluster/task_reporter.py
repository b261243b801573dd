"""The heartbeat of a task: a small file in its folder, which the driver reads."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from resumerge.engine.cluster.outcomes import Node
from resumerge.engine.reporter import ProgressUpdate, Reporter
from resumerge.errors import ResumergeError
from resumerge.foreign_files import read_foreign
from resumerge.sources.remote.prefetch import DownloadProgress

BEAT_SECONDS = 1.0
"""Least time between two heartbeats that are written."""

_BEAT = "heartbeat.json"
_LARGEST_BEAT = 1 << 16


@dataclass(frozen=True)
class Beat:
    """What a task says of itself. A later one differs: clocks of machines are not compared.

    Args:
        budget: bytes of RSS that it may use; 0 until it is known.
        nbytes: of the shard that are written.
    """

    node: Node
    count: int = 0
    budget: int = 0
    nbytes: int = 0


def read_beat(folder: Path) -> Beat | None:
    """The last heartbeat of the task with this folder; None before the first one."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        value: dict[str, Any] = json.loads(read_foreign(folder / _BEAT, _LARGEST_BEAT))
        beat = Beat(**{**value, "node": Node(**value["node"])})
        texts, numbers = (beat.node.id, beat.node.host), (beat.count, beat.budget, beat.nbytes)
        if all(type(t) is str for t in texts) and all(type(n) is int for n in numbers):
            return beat
    return None


class TaskAbandoned(ResumergeError):
    """The driver has given the task up, or is gone: its folder is deleted."""

    @property
    def text(self) -> str:
        return "the driver has given this task up"


class TaskReporter(Reporter):
    """Writes a heartbeat while blocks are computed.

    Raises:
        TaskAbandoned: from every call, once the folder is gone.
    """

    def __init__(self, folder: Path, node: Node, inner: Reporter | None = None) -> None:
        """
        Args:
            folder: of the task, which exists.
            inner: gets the heartbeats, and what is waited for, too.
        """
        self._path, self._inner = folder / _BEAT, inner or Reporter()
        self._beat = Beat(node)
        self._lock = threading.Lock()
        self._written = float("-inf")
        self.heartbeat()

    def began(self, attempt: int, budget: int) -> None:
        self._beat = replace(self._beat, budget=budget)

    def heartbeat(self) -> None:
        self._inner.heartbeat()
        with self._lock:
            now = time.monotonic()
            if now - self._written < BEAT_SECONDS:
                return
            self._written = now
            self._beat = replace(self._beat, count=self._beat.count + 1)
            fresh = self._path.with_suffix(".new")
            try:
                fresh.write_text(json.dumps(asdict(self._beat)), encoding="utf-8")
                os.replace(fresh, self._path)  # noqa: PTH105
            except FileNotFoundError:
                raise TaskAbandoned from None

    def doing(self, what: str) -> None:
        self.heartbeat()

    def reading(self, done: int, total: int) -> None:
        self.heartbeat()

    def fetching(self, fetched: DownloadProgress) -> None:
        self.heartbeat()

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._beat = replace(self._beat, nbytes=progressed.bytes_done)
        self.heartbeat()

    def waiting(self, text: str) -> None:
        self._inner.waiting(text)
        self.heartbeat()
