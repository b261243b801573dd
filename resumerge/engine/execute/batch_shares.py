"""The shares of a batch: how much of its bytes each stage of the main loop may have at once.

The governor halves the batch under memory pressure, and all of these with it.
"""

from __future__ import annotations

from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.resources.governor import Governor
from resumerge.tensors.target import BLOCK, RUN_BYTES

RUNS_OF_A_BATCH = 32
"""The least runs of blocks in a batch, so that all threads have work in it."""


def most_before_commit(governor: Governor) -> int:
    """Return the bytes that may be computed or written before they are committed: half a batch.

    The other half is the batch before, which is still being committed; a kill costs both.
    """
    return governor.batch_bytes // 2


def most_in_flight(governor: Governor) -> int:
    """Return the bytes that may be computed beyond a batch: a quarter of it (`largest_batch`)."""
    return governor.batch_bytes // 4


def most_together(execution: ExecutionContext) -> int:
    """Return the bytes that one task may write of several units: each thread has a task."""
    return execution.governor.batch_bytes // (4 * execution.threads)


def most_tasks(execution: ExecutionContext) -> int:
    """Return how many tasks may wait or run: enough for every thread, fewer under pressure."""
    fits = execution.governor.batch_bytes // (2 * 4 * BLOCK)
    return max(1, min(2 * execution.threads, fits))


def run_bytes(execution: ExecutionContext) -> int:
    """Return the bytes of an operand in a run of blocks."""
    return min(RUN_BYTES, execution.governor.batch_bytes // RUNS_OF_A_BATCH)
