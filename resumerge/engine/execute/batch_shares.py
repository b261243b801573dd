"""The shares of a batch: how much of its bytes each part of the main loop may have at once.

Under memory pressure the governor halves the batch, and every share shrinks with it.
"""

from __future__ import annotations

from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.resources.governor import Governor
from resumerge.tensors.dtypes import FLOAT32_BYTES
from resumerge.tensors.target import BLOCK_ELEMENTS, RUN_BYTES

RUNS_OF_A_BATCH = 32
"""The least runs of blocks in a batch, so that all threads have work in it."""


def most_before_commit(governor: Governor) -> int:
    """Return the bytes that may be computed or written before they are committed: half a batch.

    The other half belongs to the previous batch, which is still being committed. A kill costs both.
    """
    return governor.batch_bytes // 2


def most_in_flight(governor: Governor) -> int:
    """Return the bytes that may be computed beyond a batch: a quarter of it (`largest_batch`)."""
    return governor.batch_bytes // 4


def most_together(execution: ExecutionContext) -> int:
    """Return the bytes that one task may write when it computes several units together.

    Every thread may have such a task at the same time.
    """
    return execution.governor.batch_bytes // (4 * execution.threads)


def most_tasks(execution: ExecutionContext) -> int:
    """Return how many tasks may wait or run: enough for every thread, fewer under pressure."""
    tasks_that_fit = execution.governor.batch_bytes // (2 * FLOAT32_BYTES * BLOCK_ELEMENTS)
    return max(1, min(2 * execution.threads, tasks_that_fit))


def run_bytes(execution: ExecutionContext) -> int:
    """Return the bytes of an operand in a run of blocks."""
    return min(RUN_BYTES, execution.governor.batch_bytes // RUNS_OF_A_BATCH)
