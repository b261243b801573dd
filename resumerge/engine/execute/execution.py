"""The context of an attempt's execution: computing, writing and committing its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resumerge.engine.evaluation.source_watch import SourceWatch
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.governor import Governor
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.ledger import Ledger, Progress
from resumerge.planning import Estimate, Plan
from resumerge.sources.reader import SourceReader
from resumerge.storage import Storage


@dataclass(frozen=True, kw_only=True)
class ExecutionContext:
    """The context of an attempt's execution, which the parts of the main loop share.

    Args:
        attempt: the attempt's number in the ledger.
        progress: the progress of every unit of the plan when the attempt started.
        threads: the number of threads that compute blocks.
        measures: whether the changes to the numbers are measured (`engine/changes`).
    """

    plan: Plan
    estimate: Estimate
    ledger: Ledger
    attempt: int
    progress: Sequence[Progress]
    files: ShardFiles
    reader: SourceReader
    watch: SourceWatch
    storage: Storage
    governor: Governor
    reporter: Reporter
    stop: StopRequest
    threads: int
    measures: bool = False
