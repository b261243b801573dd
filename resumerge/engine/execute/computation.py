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


@dataclass(frozen=True)
class Computation(ABC):
    """What computes the pending units of an attempt.

    Args:
        attempt: its number in the ledger.
        files: of the shards, as recovery left them.
        replicator: copies sealed shards to the mirror meanwhile, and is started; None without one.
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
        """Compute, write and commit; the seconds that it took to import torch are returned.

        Args:
            progress: of every unit.

        Raises:
            Interrupted, Resumable: stopped before the end; what is committed is kept.
        """

    def sealed(self, shard: int) -> None:
        """Announce the number of a shard that is sealed to the mirror; may raise to end the run."""
        if self.replicator is not None:
            self.replicator.sealed(shard)
