"""The running tasks, and the reading of their heartbeats."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from resumerge.engine.cluster.exchange.base import Beat, Exchange
from resumerge.engine.cluster.machines import TaskRequest
from resumerge.engine.cluster.task import ShardTask
from resumerge.errors import Reason, Resumable
from resumerge.planning.plan import Shard


@dataclass
class RunningTask:
    """A task that was submitted and has not ended.

    Args:
        request: the resources that the task asks for.
        changed: the time of the last change of its heartbeat, at first of its submission; seconds
            of this machine's clock.
        fitted: the last time when the cluster had a machine that can take it, at first the time of
            its submission.
        started: whether the ledger has the event of its start.
        given_up: whether another task has its shard, so that its result is only compared.
    """

    task: ShardTask
    shard: Shard
    request: TaskRequest
    changed: float = field(default_factory=time.monotonic)
    fitted: float = field(default_factory=time.monotonic)
    beat: Beat | None = None
    started: bool = False
    given_up: bool = False


class Heartbeats:
    """The reader of the tasks' heartbeats."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._last_read = time.monotonic()

    def read(self, tasks: Sequence[RunningTask]) -> list[RunningTask]:
        """Return the tasks with a new heartbeat.

        While heartbeats cannot be read, no task counts as silent.

        Raises:
            Resumable: heartbeats cannot be read for too long.
        """
        now = time.monotonic()
        try:
            beats = self._exchange.beats([running.task.id for running in tasks])
        except OSError as error:
            if getattr(error, "denied", False) or now - self._last_read > self._exchange.patience:
                raise Resumable(
                    Reason.MIRROR, f"The heartbeats of tasks cannot be read: {error}"
                ) from error
            for running in tasks:
                running.changed = now
            return []
        self._last_read = now
        with_news = []
        for running in tasks:
            beat = beats.get(running.task.id)
            if beat is not None and beat != running.beat:
                running.beat, running.changed = beat, now
                with_news.append(running)
        return with_news

    def last(self, running: RunningTask) -> Beat | None:
        """Return the last heartbeat of a task that has ended; None if it sent none."""
        with suppress(OSError):
            beats = self._exchange.beats([running.task.id])
            running.beat = beats.get(running.task.id) or running.beat
        return running.beat
