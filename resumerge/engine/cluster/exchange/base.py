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

    Each heartbeat differs from the one before, so that the driver need not compare clocks.

    Args:
        node: the machine where the task runs.
        count: the number of the heartbeat.
        budget: bytes of RSS that the task may use; 0 until it is known.
        nbytes: bytes of the shard that are written.
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
        """Return the heartbeat in a file, which anybody may have written; None if it is none."""
        try:
            value = json.loads(data)
            node = Node(**value["node"])
            beat = cls(node, *(value[name] for name in ("count", "budget", "nbytes")))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        texts, numbers = (node.id, node.host), (beat.count, beat.budget, beat.nbytes)
        valid = all(type(t) is str for t in texts) and all(type(n) is int for n in numbers)
        return beat if valid else None


class TaskAbandoned(ResumergeError):
    """An error: the driver has given the task up, or is gone."""

    @property
    def text(self) -> str:
        return "the driver has given this task up"


class TaskEndpoint(ABC):
    """A task's side of the exchange: made by the driver, pickled, and used on a worker.

    Once the task is given up, `beat` and `publish` raise `TaskAbandoned`, however late the task
    calls them.

    Attributes:
        beat_seconds: least seconds between two heartbeats.
    """

    beat_seconds: ClassVar[float]

    @abstractmethod
    def obstacle(self, node: Node) -> str:
        """Return why this machine cannot take a task; empty if it can.

        It may send the first heartbeat.
        """

    @abstractmethod
    def working_folder(self) -> AbstractContextManager[Path]:
        """Return the folder where the shard is computed, which is deleted at the end."""

    @abstractmethod
    def beat(self, beat: Beat) -> None:
        """Tell the driver that the task is at work."""

    @abstractmethod
    def publish(
        self, plan: Plan, record: ShardRecord, beat: Beat, moved: Callable[[int], None]
    ) -> ShardRecord:
        """Give the complete shard in the working folder its final name, and write its record.

        A shard that was published before stays, if it has the same bytes.

        Args:
            plan: the plan of one shard.
            record: the hashes of the computed blocks.
            beat: the last heartbeat.
            moved: called between pieces of the work, with bytes that were moved.

        Returns:
            the record, completed by the place of an uploaded shard.

        Raises:
            TaskAbandoned: the task was given up, and published nothing.
            Resumable: a shard with other bytes was published before, or the place cannot be used.
        """


class Exchange(ABC):
    """The driver's side of the exchange, in one attempt.

    Attributes:
        beat_seconds: seconds between two readings of the heartbeats.
        patience: seconds for which heartbeats may be unreadable.
    """

    beat_seconds: ClassVar[float]
    patience: float = 0.0

    @abstractmethod
    def open(self, pending: Sequence[Shard]) -> None:
        """Begin, before any task.

        Args:
            pending: the shards to be computed.
        """

    @abstractmethod
    def endpoint(self, task: str, shard: Shard) -> TaskEndpoint:
        """Return the endpoint of a new task.

        Args:
            task: the task's id, ``shardN-TRY``.
            shard: the shard that it computes.
        """

    @abstractmethod
    def beats(self, tasks: Collection[str]) -> Mapping[str, Beat]:
        """Return the last heartbeats of tasks, by their ids.

        Raises:
            OSError: the heartbeats cannot be read now.
        """

    @abstractmethod
    def record(self, task: str, shard: Shard) -> ShardRecord | None:
        """Return the record of a shard that a lost task has published; None if it published none.

        Anybody may have written the record, so it is to be checked.
        """

    @abstractmethod
    def has(self, shard: Shard, record: ShardRecord) -> bool:
        """Return whether this machine sees the published shard of a record."""

    @abstractmethod
    def journaled(self, task: str, shard: Shard) -> None:
        """Note that the shard which a task published is in the ledger."""

    @abstractmethod
    def give_up(self, task: str) -> None:
        """Have a task end at its next heartbeat, if it is still at work."""

    @abstractmethod
    def adopt(self) -> list[int]:
        """Give every task up, and journal the shards that were published and not journaled.

        Returns:
            the numbers of the shards that were journaled.
        """

    @abstractmethod
    def close(self) -> None:
        """End the exchange, and delete the tasks' files."""

    def check(self) -> None:  # noqa: B027, a folder has nothing to say
        """Check that the driver may go on; called often.

        Raises:
            Resumable: the driver must not go on.
        """
