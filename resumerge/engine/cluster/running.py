"""The tasks that are not over, and what is heard of them."""

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
    """A task that was submitted, and is not over.

    Args:
        request: the resources that it asks of a machine.
        changed: when its heartbeat changed last, or it was submitted; seconds of this machine's
            clock.
        fitted: when a machine was known last that can take it, or it was submitted.
        started: whether the ledger has the event.
        given_up: whether another task has its shard; what comes back is compared.
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
        self._read = time.monotonic()

    def read(self, tasks: Sequence[RunningTask]) -> list[RunningTask]:
        """Return the tasks with a new heartbeat. No task is late as long as none can be read.

        Raises:
            Resumable: heartbeats cannot be read for too long.
        """
        now = time.monotonic()
        try:
            beats = self._exchange.beats([running.task.id for running in tasks])
        except OSError as error:
            if getattr(error, "denied", False) or now - self._read > self._exchange.patience:
                raise Resumable(
                    Reason.MIRROR, f"The heartbeats of tasks cannot be read: {error}"
                ) from error
            for running in tasks:
                running.changed = now
            return []
        self._read = now
        heard = []
        for running in tasks:
            beat = beats.get(running.task.id)
            if beat is not None and beat != running.beat:
                running.beat, running.changed = beat, now
                heard.append(running)
        return heard

    def last(self, running: RunningTask) -> Beat | None:
        """Return the last heartbeat of a task that is over."""
        with suppress(OSError):
            beats = self._exchange.beats([running.task.id])
            running.beat = beats.get(running.task.id) or running.beat
        return running.beat
