"""The outcomes of tasks, which workers return to the driver.

`ShardJournal` (`journal.py`) compares the hashes of a `Finished` with committed ones, and
`exchange/conflicts.py` compares a published shard with another task's.
"""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import Reason

OUT_OF_MEMORY = (Reason.OOM, Reason.MEMORY)
"""The reasons after which the next task gets less memory. `MEMORY` comes from the governor."""


@dataclass(frozen=True)
class Node:
    """The machine where a task ran.

    Args:
        id: Ray's id of the node; empty for the driver's machine.
        host: the machine's name.
    """

    id: str
    host: str

    def __str__(self) -> str:
        return f"{self.host} ({self.id[:8]})" if self.id else f"{self.host} (driver)"


@dataclass(frozen=True)
class Finished:
    """The outcome of a task that published its shard.

    Args:
        node: the machine where the task ran.
        record: the hashes of the shard's blocks and of their inputs.
        nbytes: the size of the shard's file in bytes.
        seconds: the duration of the task in seconds.
        peak_rss: the peak RSS of the worker's process in bytes.
        bytes_received: the bytes that were received of streamed files.
        requests: the number of requests for streamed files.
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
    """A block of which two machines computed different bytes.

    Args:
        tensor: the name of the block's tensor.
        block: the number of the block in the tensor.
        first: the hash that is kept, 32 hex digits.
        second: the hash that was computed later, on another machine, 32 hex digits.
    """

    tensor: str
    block: int
    first: str
    second: str

    def message(self, shard: str, node: str) -> str:
        """Return the message for the user, with the remedy.

        Args:
            shard: the name of the shard that contains the block.
            node: the name of the machine that computed the second hash.
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
        node: the machine where the task ran; None if that is not known.
        reason: the reason, by which the driver stops the run or chooses the memory of the next
            task.
        message: a text on the failure, for the ledger and the user.
    """

    node: Node | None
    reason: Reason
    message: str


@dataclass(frozen=True)
class WorkerRefused:
    """The outcome of a task on a worker that cannot take any task of this run.

    Args:
        node: the worker's machine.
        differences: the differences between worker and driver, one line of text each.
    """

    node: Node
    differences: tuple[str, ...]


Outcome = Finished | Failed | WorkerRefused
