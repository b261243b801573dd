"""The outcomes of tasks, as workers return them to the driver."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import Reason

OUT_OF_MEMORY = (Reason.OOM, Reason.MEMORY)
"""The reasons after which the next task gets less memory; `MEMORY` is the governor's."""


@dataclass(frozen=True)
class Node:
    """The machine where a task ran.

    Args:
        id: the id of Ray's node; empty for the driver itself.
        host: the machine's name.
    """

    id: str
    host: str

    def __str__(self) -> str:
        return f"{self.host} ({self.id[:8]})" if self.id else f"{self.host} (driver)"


@dataclass(frozen=True)
class Finished:
    """The outcome of a task whose shard has its final name.

    Args:
        record: the hashes of its blocks and of their inputs.
        seconds: seconds that the task took.
        peak_rss: largest RSS of the worker's process, in bytes.
        bytes_received: bytes of streamed files.
        requests: requests for streamed files.
    """

    node: Node
    record: ShardRecord
    nbytes: int
    seconds: float
    peak_rss: int
    bytes_received: int = 0
    requests: int = 0


@dataclass(frozen=True)
class HashConflict:
    """A block that two machines computed to different bytes.

    Args:
        first: the hash (32 hex digits) that is kept.
        second: the other hash.
    """

    tensor: str
    block: int
    first: str
    second: str

    def message(self, shard: str, node: str) -> str:
        """Return a message: the outcome, and the remedy.

        Args:
            shard: the shard's name.
            node: where the second hash was computed.
        """
        return (
            f"Two machines computed different bytes of {self.tensor} in {shard}: block "
            f"{self.block} had the hash {self.first} first, and {self.second} on {node}. One of "
            "them has faulty memory or other code. The first is kept. Find out which one it "
            "is (compute the shard without --ray in another folder), remove it from the "
            "cluster, and resume; if the first was wrong, start over with --restart."
        )


@dataclass(frozen=True)
class Failed:
    """The outcome of a task that published nothing.

    Args:
        node: the machine where it ran; None if the worker was lost before its first heartbeat.
        reason: the reason of the failure.
    """

    node: Node | None
    reason: Reason
    message: str


@dataclass(frozen=True)
class WorkerRefused:
    """The outcome of a worker that cannot take any task of this run.

    Args:
        differences: what differs on the worker, a line each.
    """

    node: Node
    differences: tuple[str, ...]


Outcome = Finished | Failed | WorkerRefused
