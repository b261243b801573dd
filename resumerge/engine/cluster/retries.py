"""What follows when a task fails: where the next one goes, with what memory, or the driver.

The next task goes to a machine where none has failed, and the last one has half of the memory. A
task that ran out of memory is followed by one with half of it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from resumerge.engine.cluster.outcomes import OUT_OF_MEMORY, Failed
from resumerge.errors import Reason
from resumerge.host.oom import lowered_budget

TRIES = 3
"""Tasks of a shard that may fail before the driver computes it."""

_EVERYWHERE = (Reason.SOURCE_CHANGED, Reason.HASH_CONFLICT)
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
        failed: tasks that failed.
        is_refused: whether no machine of the cluster took a task.
        nodes: ids of the nodes where tasks failed.
        memory: budget of the next task in bytes; None for what the run's options say.
    """

    count: int = 0
    failed: int = 0
    is_refused: bool = False
    nodes: set[str] = field(default_factory=set)
    memory: int | None = None

    @property
    def may_try_again(self) -> bool:
        """Whether there is another task; else the driver computes the shard."""
        return self.failed < TRIES and not self.is_refused

    def avoided(self, suited: set[str]) -> set[str]:
        """Return the ids of the nodes that the next task is kept from.

        Args:
            suited: ids of the nodes that have what the task asks for.
        """
        return self.nodes if suited - self.nodes else set()

    def note(self, failed: Failed, node: str, budget: int) -> None:
        """Count a failure, and decide on the memory of the next task.

        Args:
            failed: the outcome.
            node: id of the node; empty if it is not known.
            budget: bytes that the task had; 0 if that is not known.
        """
        if failed.reason == Reason.UNSCHEDULED:
            self.is_refused = True
        else:
            self.failed += 1
        if node:
            self.nodes.add(node)
        last = not self.is_refused and self.failed == TRIES - 1
        if failed.reason in OUT_OF_MEMORY or last:
            self.memory = lowered_budget(budget) or self.memory
