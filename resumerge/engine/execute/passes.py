"""Passes over all blocks of a tensor, run by the threads that compute blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.execute.page_cache import PageCache
from resumerge.engine.execute.read_ahead import ReadAhead
from resumerge.engine.execute.uncommitted_shares import block_run_bytes, most_tasks
from resumerge.tensors import Merged, Spilled

SAMPLE_RUNS = 2
"""A sampling task has so many times the blocks of a computing task: it reads less of each."""


class Passes:
    """The passes that prepare a unit before its blocks: they scan, or write scratch files.

    Args:
        execution: the context of the execution; its governor limits how much a pass reads at once.
        pool: the threads that compute blocks, which also run the passes.
        page_cache: drops pages of blocks that a pass has read.
        read_ahead: forecasts the ranges that a pass will read.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        pool: ThreadPoolExecutor,
        page_cache: PageCache,
        read_ahead: ReadAhead,
    ) -> None:
        self._execution, self._pool = execution, pool
        self._page_cache, self._read_ahead = page_cache, read_ahead

    def run(
        self, tensor: Merged | Spilled, function: Callable[[range], Any], sample: bool
    ) -> Iterator[Any]:
        """Yield the results of a function of block runs, in order; all threads compute them.

        The threads work a few block runs ahead of the consumer.

        Args:
            tensor: the tensor whose blocks the pass reads.
            function: called with the numbers of the blocks of each block run.
            sample: whether the function reads only a sample of each block.

        Raises:
            PassStopped: a signal asked the process to stop.
            Resumable: no block fitted in memory for too long.
        """
        with self._read_ahead.expect_pass(tensor, sample=sample):
            yield from self._results(tensor, function, sample)

    def _results(
        self, tensor: Merged | Spilled, function: Callable[[range], Any], sample: bool
    ) -> Iterator[Any]:
        execution = self._execution
        running_tasks: deque[tuple[range, Future[Any]]] = deque()
        next_block = 0
        while next_block < tensor.blocks:
            execution.governor.wait_for_memory(execution.stop)
            if execution.stop.requested:
                raise PassStopped
            block_count = tensor.blocks_at_once(tensor.block_elements, block_run_bytes(execution))
            block_count *= SAMPLE_RUNS if sample else 1
            indices = range(next_block, min(next_block + block_count, tensor.blocks))
            running_tasks.append((indices, self._pool.submit(function, indices)))
            next_block = indices.stop
            while len(running_tasks) > (most_tasks(execution) if next_block < tensor.blocks else 0):
                finished_indices, future = running_tasks.popleft()
                yield future.result()
                self._page_cache.passed_over(tensor, finished_indices)
                execution.reporter.heartbeat()


class PassStopped(BaseException):
    """The exception that ends a pass early, because a signal asked the process to stop.

    It does not derive from `Exception`, so that no merge method catches it.
    """
