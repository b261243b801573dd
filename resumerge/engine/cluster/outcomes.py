"""What comes back from a task."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.engine.recovery.published import ShardRecord

HASH_CONFLICT = "hash_conflict"
"""The event, and the reason: two machines computed different bytes."""


@dataclass(frozen=True)
class Node:
    """Where a task ran.

    Args:
        id: of Ray's node; empty for the driver itself.
        host: the machine's name.
    """

    id: str
    host: str

    def __str__(self) -> str:
        return f"{self.host} ({self.id[:8]})" if self.id else f"{self.host} (driver)"


@dataclass(frozen=True)
class Finished:
    """The shard has its final name.

    Args:
        record: the hashes of its blocks, and of what they were computed from.
        seconds: that the task took.
        peak_rss: bytes, of the worker's process.
    """

    node: Node
    record: ShardRecord
    nbytes: int
    seconds: float
    peak_rss: int


@dataclass(frozen=True)
class Failed:
    """Nothing was published.

    Args:
        node: None where the worker was lost before it said where it was.
        reason: that of a `Resumable`, ``error`` for what was raised; ``lost``, ``oom`` or
            ``stalled`` of a worker that said nothing.
    """

    node: Node | None
    reason: str
    message: str


@dataclass(frozen=True)
class Refused:
    """The worker cannot take any task of this run.

    Args:
        differences: a line each.
    """

    node: Node
    differences: tuple[str, ...]


Outcome = Finished | Failed | Refused
