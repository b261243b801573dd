"""The contract between a driver and its tasks."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from resumerge.engine.cluster.outcomes import Node
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import ResumergeError
from resumerge.planning.plan import Plan, Shard


@dataclass(frozen=True)
class Beat:
    """A heartbeat of a task.

    Each heartbeat differs from the previous one, so the driver does not have to compare clocks.

    Args:
        node: the machine where the task runs.
        count: the number of the heartbeat, which makes each one different.
        budget: the most bytes of RSS that the task may use; 0 until the budget is decided.
        nbytes: the bytes of the shard that are written, committed or not.
    """

    node: Node
    count: int = 0
    budget: int = 0
    nbytes: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the heartbeat as JSON."""
        return asdict(self)

    @classmethod
    def of_bytes(cls, data: bytes) -> Beat | None:
        """Parse an untrusted heartbeat; return None if it is invalid."""
        try:
            decoded_beat = json.loads(data)
            node = Node(**decoded_beat["node"])
            beat = cls(node, *(decoded_beat[name] for name in ("count", "budget", "nbytes")))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        texts, numbers = (node.id, node.host), (beat.count, beat.budget, beat.nbytes)
        is_valid = all(type(t) is str for t in texts) and all(type(n) is int for n in numbers)
        return beat if is_valid else None


class TaskAbandoned(ResumergeError):
    """The error of a task that the driver has given up, or whose driver has ended."""

    @property
    def text(self) -> str:
        return "the driver has given this task up"


class TaskEndpoint(ABC):
    """A task's side of the exchange. The driver creates it and pickles it; a worker uses it.

    After the task was given up, `beat` and `publish` raise `TaskAbandoned`, however late the task
    calls them.

    Attributes:
        beat_seconds: the least seconds between two heartbeats.
    """

    beat_seconds: ClassVar[float]

    @abstractmethod
    def obstacle(self, node: Node) -> str:
        """Return the reason why this machine cannot take a task; empty if it can.

        The method may send the first heartbeat.
        """

    @abstractmethod
    def working_folder(self) -> AbstractContextManager[Path]:
        """Return a context with the folder where the shard is computed, deleted on exit."""

    @abstractmethod
    def beat(self, beat: Beat) -> None:
        """Send a heartbeat to the driver."""

    @abstractmethod
    def publish(
        self, plan: Plan, record: ShardRecord, beat: Beat, moved: Callable[[int], None]
    ) -> ShardRecord:
        """Publish the complete shard in the working folder under its final name, and its record.

        If another task has published the shard before, that shard is compared and kept.

        Args:
            plan: the plan of one shard, with which the task computed it.
            record: the hashes of all blocks that this task computed.
            beat: the last heartbeat, which names this machine.
            moved: called between pieces of the work, with the number of bytes moved.

        Returns:
            the record; if the shard is in a bucket, with its `Uploaded`.

        Raises:
            TaskAbandoned: the task was given up, and published nothing.
            Resumable: the shard was published before with other bytes, or the folder or bucket
                cannot be used now.
        """


class Exchange(ABC):
    """The driver's side of the exchange, in one attempt.

    Attributes:
        beat_seconds: the seconds between two readings of the heartbeats.
        patience: the seconds for which reading heartbeats may fail.
    """

    beat_seconds: ClassVar[float]
    patience: float = 0.0

    @abstractmethod
    def open(self, pending: Sequence[Shard]) -> None:
        """Prepare the folder or bucket, before the first task is submitted.

        Args:
            pending: the shards to compute; none of them is in the ledger as sealed.
        """

    @abstractmethod
    def endpoint(self, task: str, shard: Shard) -> TaskEndpoint:
        """Return the endpoint of a new task.

        Args:
            task: the task's id, ``shardN-TRY``.
            shard: the shard that the task computes, with its number in the run's plan.
        """

    @abstractmethod
    def beats(self, tasks: Collection[str]) -> Mapping[str, Beat]:
        """Return the last heartbeat of each task that sent one, by the task's id.

        Raises:
            OSError: the heartbeats cannot be read now.
        """

    @abstractmethod
    def record(self, task: str, shard: Shard) -> ShardRecord | None:
        """Return the record of the shard that a lost task published, or None.

        The record is untrusted: the caller has to check it.
        """

    @abstractmethod
    def has(self, shard: Shard, record: ShardRecord) -> bool:
        """Return whether the shard of a record is published, as far as this machine can see."""

    @abstractmethod
    def journaled(self, task: str, shard: Shard) -> None:
        """Discard the record of a published shard, after the shard was journaled."""

    @abstractmethod
    def give_up(self, task: str) -> None:
        """Make a task that is still running end at its next heartbeat."""

    @abstractmethod
    def adopt(self) -> list[int]:
        """Give up all tasks, and journal published shards that are not in the ledger yet.

        Returns:
            the numbers of these shards.
        """

    @abstractmethod
    def close(self) -> None:
        """End the exchange, and delete the tasks' files."""

    def check(self) -> None:  # noqa: B027, only a bucket has something to check
        """Check that the driver may continue. Called often.

        Raises:
            Resumable: the driver must not continue.
        """
