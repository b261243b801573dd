"""The shares of the uncommitted limit: how much of it each part of the main loop may have at once.

At most two batches are uncommitted: one is being committed; the next is collected, or waits for
that. One half of the limit is for the former. The other half is for the latter and for the blocks
in flight beyond it. So a kill costs at most the limit. Under memory pressure the governor halves
the limit, and every share shrinks with it.
"""

from __future__ import annotations

from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.resources.governor import Governor
from resumerge.tensors.dtypes import FLOAT32_BYTES
from resumerge.tensors.target import BLOCK_ELEMENTS, BLOCK_RUN_BYTES

LEAST_BLOCK_RUNS = 32
"""The least block runs within the uncommitted limit, so that all threads have work."""


def most_before_commit(governor: Governor) -> int:
    """Return the bytes that may be computed or written beside the batch that is being committed.

    They are half of the uncommitted limit. That batch has the other half.
    """
    return governor.uncommitted_limit // 2


def most_in_flight(governor: Governor) -> int:
    """Return the bytes in flight from which on no further task starts: a quarter of the limit.

    Threads compute them while the blocks before them are handed over to be committed.
    """
    return governor.uncommitted_limit // 4


def most_together(execution: ExecutionContext) -> int:
    """Return the bytes that one task may write when it computes several units together.

    Every thread may have such a task at the same time.
    """
    return execution.governor.uncommitted_limit // (4 * execution.threads)


def most_tasks(execution: ExecutionContext) -> int:
    """Return how many tasks may wait or run: enough for every thread, fewer under pressure."""
    limit = execution.governor.uncommitted_limit
    tasks_that_fit = limit // (2 * FLOAT32_BYTES * BLOCK_ELEMENTS)
    return max(1, min(2 * execution.threads, tasks_that_fit))


def block_run_bytes(execution: ExecutionContext) -> int:
    """Return the most bytes of an operand in a block run; fewer under pressure."""
    return min(BLOCK_RUN_BYTES, execution.governor.uncommitted_limit // LEAST_BLOCK_RUNS)
