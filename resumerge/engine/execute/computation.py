"""A computation: everything that is pending in an attempt, computed, written and committed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from resumerge.engine.context import RunContext
from resumerge.engine.execute.budget import ResourceBudget
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.ledger import Ledger, Progress
from resumerge.mirror import Replicator
from resumerge.planning.plan import Plan
from resumerge.sources.reader import SourceReader


@dataclass(frozen=True, kw_only=True)
class Computation(ABC):
    """A computation of the pending units of an attempt.

    Args:
        attempt: the attempt's number in the ledger.
        files: the shards, as recovery left them.
        replicator: copies sealed shards to the mirror meanwhile, and is started; None without a
            mirror.
    """

    context: RunContext
    plan: Plan
    ledger: Ledger
    budget: ResourceBudget
    attempt: int
    files: ShardFiles
    reader: SourceReader
    replicator: Replicator | None = None

    @abstractmethod
    def run(self, progress: Sequence[Progress]) -> float:
        """Compute, write and commit, and return the seconds before the first block was asked for.

        In these torch was imported, steps were done, and the files of steps were waited for.

        Args:
            progress: the progress of every unit.

        Raises:
            Interrupted: a signal stopped the run; what is committed is kept.
            Resumable: the run cannot go on now; what is committed is kept.
        """

    def sealed(self, shard: int) -> None:
        """Announce a sealed shard to the mirror, by its number. This may raise, to end the run."""
        if self.replicator is not None:
            self.replicator.sealed(shard)
