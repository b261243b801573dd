"""The retries of a shard after a task failed: on which machine, and with how much memory.

The next task goes to a machine where no task of the shard has failed. If a task ran out of memory,
the next one gets half of its memory; the last task gets half in any case. After that, the driver
computes the shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from resumerge.engine.cluster.outcomes import OUT_OF_MEMORY, Failed
from resumerge.errors import Reason
from resumerge.host.oom import lowered_budget

TRIES = 3
"""The number of tasks of a shard that may fail before the driver computes it."""

_EVERYWHERE = (Reason.SOURCE_CHANGED, Reason.HASH_CONFLICT)
"""Reasons for which a task would fail on every machine. A full disk is none: it may be a disk of
that machine alone. If it is the shared disk, the driver fails there in the end, too."""


def stops_the_run(failed: Failed) -> bool:
    """Return whether a failure would happen on any machine."""
    return failed.reason in _EVERYWHERE


@dataclass
class Tries:
    """The tasks of one shard so far.

    Args:
        count: number of tasks that were submitted.
        failed: number of tasks that failed.
        is_refused: whether no machine of the cluster took a task.
        nodes: ids of the nodes where tasks failed.
        memory: the memory of the next task in bytes; None to use the run's options.
    """

    count: int = 0
    failed: int = 0
    is_refused: bool = False
    nodes: set[str] = field(default_factory=set)
    memory: int | None = None

    @property
    def may_try_again(self) -> bool:
        """Whether another task may be submitted; otherwise the driver computes the shard."""
        return self.failed < TRIES and not self.is_refused

    def avoided(self, suited: set[str]) -> set[str]:
        """Return the ids of the nodes that the next task must not run on.

        Args:
            suited: ids of the nodes with the resources of the task.
        """
        return self.nodes if suited - self.nodes else set()

    def note(self, failed: Failed, node: str, budget: int) -> None:
        """Count a failure, and decide on the memory of the next task.

        Args:
            failed: the outcome.
            node: id of the node; empty if it is unknown.
            budget: bytes of memory that the task had; 0 if that is unknown.
        """
        if failed.reason == Reason.UNSCHEDULED:
            self.is_refused = True
        else:
            self.failed += 1
        if node:
            self.nodes.add(node)
        next_is_last = self.failed == TRIES - 1
        if failed.reason in OUT_OF_MEMORY or next_is_last:
            self.memory = lowered_budget(budget) or self.memory
