"""The running tasks, and the reader of their heartbeats."""

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
        request: the resources that the task requests.
        changed: the time when the heartbeat last changed, in seconds of `time.monotonic`. Until the
            first heartbeat, this is the time of submission.
        fitted: the last time when the cluster had a machine with the requested resources, in the
            same seconds. It begins with the time of submission.
        beat: the last heartbeat; None before the first one.
        started: whether the ledger has an event for the task's start.
        given_up: whether the driver no longer waits for the task. If the shard is already
            journaled when the task ends, its result is only compared.
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
        """Read the heartbeats of tasks, and return the tasks whose heartbeat is new.

        While heartbeats cannot be read, no task counts as silent.

        Raises:
            Resumable: heartbeats could not be read for longer than `Exchange.patience`, or access
                is denied.
        """
        now = time.monotonic()
        try:
            beats_by_task = self._exchange.beats([running.task.id for running in tasks])
        except OSError as error:
            if getattr(error, "denied", False) or now - self._last_read > self._exchange.patience:
                raise Resumable(
                    Reason.MIRROR, f"The heartbeats of tasks cannot be read: {error}"
                ) from error
            for running in tasks:
                running.changed = now
            return []
        self._last_read = now
        updated_tasks = []
        for running in tasks:
            beat = beats_by_task.get(running.task.id)
            if beat is not None and beat != running.beat:
                running.beat, running.changed = beat, now
                updated_tasks.append(running)
        return updated_tasks

    def last(self, running: RunningTask) -> Beat | None:
        """Return the last heartbeat of a task that has ended, or None if it never sent one."""
        with suppress(OSError):
            beats = self._exchange.beats([running.task.id])
            running.beat = beats.get(running.task.id) or running.beat
        return running.beat
