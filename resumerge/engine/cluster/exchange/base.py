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
    """What a task says of itself. A later one differs: clocks of machines are not compared.

    Args:
        budget: bytes of RSS that it may use; 0 until it is known.
        nbytes: of the shard that are written.
    """

    node: Node
    count: int = 0
    budget: int = 0
    nbytes: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_bytes(cls, data: bytes) -> Beat | None:
        """Return the heartbeat in a JSON file that anybody may have written; None if it is none."""
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
    """The driver has given the task up, or is gone."""

    @property
    def text(self) -> str:
        return "the driver has given this task up"


class TaskEndpoint(ABC):
    """A task's side: made by the driver, pickled, and used on a worker.

    Once the task is given up, `beat` and `publish` raise `TaskAbandoned`, however late it wakes up.

    Attributes:
        beat_seconds: least time between two heartbeats.
    """

    beat_seconds: ClassVar[float]

    @abstractmethod
    def obstacle(self, node: Node) -> str:
        """Why this machine cannot take a task; empty if it can. It may send the first heartbeat."""

    @abstractmethod
    def working_folder(self) -> AbstractContextManager[Path]:
        """The folder where the shard is computed, which is deleted at the end."""

    @abstractmethod
    def beat(self, beat: Beat) -> None:
        """Tell the driver that the task is at work."""

    @abstractmethod
    def publish(
        self, plan: Plan, record: ShardRecord, beat: Beat, moved: Callable[[int], None]
    ) -> ShardRecord:
        """Give the complete shard in the working folder its final name, and leave its record.

        A shard that is there already stays, if it has the same bytes.

        Args:
            plan: of one shard.
            beat: the last heartbeat.
            moved: called between pieces of the work, with bytes that were moved.

        Returns:
            The record, with what is known now.

        Raises:
            TaskAbandoned: nothing was published.
            Resumable: the shard that is there has other bytes, or the place cannot be used.
        """


class Exchange(ABC):
    """The driver's side, in one attempt.

    Attributes:
        beat_seconds: time between two looks at the heartbeats.
        patience: seconds for which they may be unreadable.
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
        """The side of a new task.

        Args:
            task: its id, ``shardN-TRY``.
            shard: that it computes.
        """

    @abstractmethod
    def beats(self, tasks: Collection[str]) -> Mapping[str, Beat]:
        """The last heartbeats of tasks, by their ids.

        Raises:
            OSError: they cannot be read now.
        """

    @abstractmethod
    def record(self, task: str, shard: Shard) -> ShardRecord | None:
        """The record of a shard that a task has published and not told of; else None. Anybody may
        have written it."""

    @abstractmethod
    def has(self, shard: Shard, record: ShardRecord) -> bool:
        """Whether a published shard is there, as this machine sees it."""

    @abstractmethod
    def journaled(self, task: str, shard: Shard) -> None:
        """The shard that a task published is in the ledger."""

    @abstractmethod
    def give_up(self, task: str) -> None:
        """Have a task end at its next heartbeat, if it is still at work."""

    @abstractmethod
    def adopt(self) -> list[int]:
        """Journal what was published and not journaled; every task is given up. The numbers of
        these shards are returned."""

    @abstractmethod
    def close(self) -> None:
        """End: nothing is left of the tasks."""

    def check(self) -> None:  # noqa: B027, a folder has nothing to say
        """Called often.

        Raises:
            Resumable: the driver must not go on.
        """
