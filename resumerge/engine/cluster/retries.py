"""The retries of a shard after a task failed: on which machine, and with how much memory.

The next task runs on a machine where no task of the shard has failed, if there is such a machine.
If a task ran out of memory, the next task gets half of its memory. The last task always gets half
the memory of the task before it. After that, the driver computes the shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from resumerge.engine.cluster.outcomes import OUT_OF_MEMORY, Failed
from resumerge.errors import Reason
from resumerge.host.oom import lowered_budget

TRIES = 3
"""The number of failed tasks of a shard after which the driver computes the shard."""

_EVERYWHERE = (Reason.SOURCE_CHANGED, Reason.HASH_CONFLICT)
"""Reasons for which a task would fail on every machine. A full disk is not among them, because it
may be a local disk. If the shared disk is full, the driver fails in the end as well."""


def stops_the_run(failed: Failed) -> bool:
    """Return whether the task would fail in the same way on every machine."""
    return failed.reason in _EVERYWHERE


@dataclass
class Tries:
    """The history of one shard's tasks.

    Args:
        count: the number of tasks that were submitted.
        failed: the number of tasks that failed after a machine had taken them.
        is_refused: whether a task was not taken by any machine of the cluster.
        nodes: the ids of the nodes where tasks failed.
        memory: the memory of the next task in bytes; None to use the run's options.
    """

    count: int = 0
    failed: int = 0
    is_refused: bool = False
    nodes: set[str] = field(default_factory=set)
    memory: int | None = None

    @property
    def may_retry(self) -> bool:
        """Whether another task may be submitted. If not, the driver computes the shard."""
        return self.failed < TRIES and not self.is_refused

    def avoided(self, suited: set[str]) -> set[str]:
        """Return the ids of the nodes that the next task must not run on.

        The set is empty if tasks have failed on all suited nodes.

        Args:
            suited: the ids of the nodes with the resources of the task.
        """
        return self.nodes if suited - self.nodes else set()

    def record_failure(self, failed: Failed, node: str, budget: int) -> None:
        """Record a failure, and decide on the memory of the next task.

        Args:
            failed: the outcome; by its reason the task counts as failed, or as refused by all
                machines.
            node: the id of the node where the task ran; empty if not known.
            budget: the memory budget of the task in bytes; 0 if not known.
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
