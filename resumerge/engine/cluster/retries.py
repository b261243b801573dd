"""What follows when a task fails: elsewhere, then with half of the memory, then by the driver."""

from __future__ import annotations

from dataclasses import dataclass, field

from resumerge.engine.cluster.outcomes import HASH_CONFLICT, Failed

TRIES = 3
"""Tasks of a shard that may fail before the driver computes it."""

UNSCHEDULED = "unscheduled"
"""The reason of a task that no machine had room for: another one would wait as long."""

_EVERYWHERE = ("source_changed", HASH_CONFLICT)
"""Reasons that another machine has, too. A full disk may be one of the machine's own; if it is the
shared one, the driver finds that in the end."""


def stops_the_run(failed: Failed) -> bool:
    """Return whether a failure would happen on any machine."""
    return failed.reason in _EVERYWHERE


@dataclass
class Tries:
    """The tasks of one shard so far.

    Args:
        count: tasks that were submitted.
        nodes: ids of the nodes where tasks failed.
        memory: budget of the next task in bytes; None for what the run's options say.
    """

    count: int = 0
    failed: int = 0
    nodes: set[str] = field(default_factory=set)
    memory: int | None = None

    @property
    def left(self) -> bool:
        """Whether there is another task; else the driver computes the shard."""
        return self.failed < TRIES

    def note(self, failed: Failed, node: str, budget: int) -> None:
        """Count a failure.

        Args:
            failed: the outcome.
            node: id of the node; empty if it is not known.
            budget: bytes that the task had; 0 if that is not known.
        """
        self.failed = TRIES if failed.reason == UNSCHEDULED else self.failed + 1
        if node:
            self.nodes.add(node)
        if failed.reason in ("oom", "memory") or self.failed == TRIES - 1:
            self.memory = budget // 2 or self.memory
