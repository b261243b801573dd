"""A computation: computing, writing and committing all pending blocks of an attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from resumerge.engine.context import RunContext
from resumerge.engine.execute.budget import ResourceBudget
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.timer import Timer
from resumerge.ledger import Ledger, Progress
from resumerge.mirror import Replicator
from resumerge.planning.plan import Plan
from resumerge.sources.reader import SourceReader


@dataclass(frozen=True, kw_only=True)
class Computation(ABC):
    """A computation of the pending units of an attempt.

    Args:
        attempt: the attempt's number in the ledger.
        files: the files of the shards after recovery, which the caller closes.
        replicator: copies sealed shards to the mirror during the computation; it has already been
            started. None without a mirror.
        timer: the timer of the merge. It is paused while torch is imported and steps are computed.
    """

    context: RunContext
    plan: Plan
    ledger: Ledger
    budget: ResourceBudget
    attempt: int
    files: ShardFiles
    reader: SourceReader
    replicator: Replicator | None = None
    timer: Timer = field(default_factory=Timer)

    @abstractmethod
    def run(self, progress: Sequence[Progress]) -> None:
        """Compute, write and commit every pending block.

        Args:
            progress: the progress of every unit of the plan, in its order.

        Raises:
            Interrupted: a signal stopped the run; committed blocks are kept.
            Resumable: the run cannot continue now; committed blocks are kept.
        """

    def sealed(self, shard: int) -> None:
        """Announce a sealed shard, by its number, to the replicator; an exception ends the run."""
        if self.replicator is not None:
            self.replicator.sealed(shard)
