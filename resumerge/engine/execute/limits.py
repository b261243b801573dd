"""How much is computed at once: less under memory pressure."""

from __future__ import annotations

from resumerge.engine.execute.execution import Execution
from resumerge.tensors.target import BLOCK, RUN_BYTES

RUNS_OF_A_BATCH = 32
"""The least runs of blocks in a batch, so that all threads have work in it."""


def most_tasks(execution: Execution) -> int:
    """Return how many tasks may wait or run: enough for every thread, fewer under pressure."""
    fits = execution.governor.batch_bytes // (2 * 4 * BLOCK)
    return max(1, min(2 * execution.threads, fits))


def run_bytes(execution: Execution) -> int:
    """Return the bytes of an operand in a run of blocks: less under memory pressure."""
    return min(RUN_BYTES, execution.governor.batch_bytes // RUNS_OF_A_BATCH)
