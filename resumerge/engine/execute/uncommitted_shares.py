"""The shares of the uncommitted limit: the bytes that each part of the main loop may use at once.

At most two batches are uncommitted. The first is being committed, and has one half of the limit.
The second is collected, or waits for the first; it shares the other half with the blocks in flight
beyond it. So a kill costs at most the limit. Under memory pressure the governor halves the limit,
and every share shrinks with it.
"""

from __future__ import annotations

from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.resources.governor import Governor
from resumerge.tensors.dtypes import FLOAT32_BYTES
from resumerge.tensors.target import BLOCK_ELEMENTS, BLOCK_RUN_BYTES

LEAST_BLOCK_RUNS = 32
"""The uncommitted limit holds at least so many block runs, so that all threads have work."""


def most_before_commit(governor: Governor) -> int:
    """Return the most bytes of the next batch and the blocks in flight: half of the limit.

    The other half belongs to the batch that is being committed.
    """
    return governor.uncommitted_limit // 2


def most_in_flight(governor: Governor) -> int:
    """Return the bytes in flight at which no further task starts: a quarter of the limit.

    Threads compute these blocks while the blocks before them are handed to the committer.
    """
    return governor.uncommitted_limit // 4


def most_together(execution: ExecutionContext) -> int:
    """Return the most bytes that one task may write if it computes several units together.

    Every thread may run such a task at the same time.
    """
    return execution.governor.uncommitted_limit // (4 * execution.threads)


def most_tasks(execution: ExecutionContext) -> int:
    """Return the most tasks that may wait or run: two per thread, fewer under memory pressure."""
    limit = execution.governor.uncommitted_limit
    tasks_that_fit = limit // (2 * FLOAT32_BYTES * BLOCK_ELEMENTS)
    return max(1, min(2 * execution.threads, tasks_that_fit))


def block_run_bytes(execution: ExecutionContext) -> int:
    """Return the most bytes of an operand in a block run; fewer under memory pressure."""
    return min(BLOCK_RUN_BYTES, execution.governor.uncommitted_limit // LEAST_BLOCK_RUNS)
