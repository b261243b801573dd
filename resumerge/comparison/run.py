"""A comparison from the command to its document: tensor by tensor, by all threads, journaled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from resumerge.comparison.document import document_of
from resumerge.comparison.facts import read_vocabularies
from resumerge.comparison.journal import Journal
from resumerge.comparison.models import MatchedTensor, Models, open_models
from resumerge.comparison.tensor import PIECE_ELEMENTS, Row, TensorComparison
from resumerge.engine.checks.memory import memory_budget
from resumerge.engine.context import RunContext
from resumerge.engine.evaluation.tensor_evaluator import TensorEvaluator, serial_pass
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Reason, Resumable, refuse
from resumerge.host.blas import one_blas_thread
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.sizes import show_size
from resumerge.sources.reader import SourceReader
from resumerge.storage import Storage
from resumerge.tensors import Merged, Spilled

MOST_THREADS = 4
"""The most threads, also with fewer processors: some wait for the disk while others compute. More
threads would take memory without being faster."""

LARGEST_BUFFERS = 64 << 20
"""The most bytes of all threads' buffers for the tensors of stages and adapters. If all threads
need more, fewer threads are started."""

_WAIT_SECONDS = 0.2


def compare_models(
    models: Sequence[str],
    base: str | None,
    options: Options,
    reporter: Reporter,
    storage: Storage | None = None,
    stop: StopRequest | None = None,
    *,
    recipe: Path | None = None,
) -> dict[str, Any]:
    """Compare models, and return the document of ``compare --json``.

    A second call continues a stopped comparison, if no model has changed since.

    Args:
        models: references to models, as in a recipe; the others are compared with the first.
        base: a reference to the model that they were made from; None without a base.
        options: the command's options: the state folder, the number of threads, `offline`, and the
            options for planning the stages of `recipe`.
        reporter: receives the phases and the progress.
        storage: writes the journal.
        stop: the request to stop that signals make.
        recipe: a recipe whose stages the references may name. Stages are computed as they are read.

    Raises:
        InputError: a reference is not a model, or its files cannot be read by ranges; a stage
            cannot be planned, or takes more memory than is available.
        Interrupted: a signal asked to stop; compared tensors stay in the journal.
        Resumable: a model, or the state folder, cannot be used now.
    """
    storage, runs = storage or Storage(), RunStore(options.state_dir)
    context = RunContext(options, reporter, storage, stop or StopRequest(), runs)
    with context.working():
        opened_models = open_models(context, models, base, recipe)
        vocabularies = read_vocabularies(context, opened_models)
        tensors = list(opened_models.matched_tensors())
        threads = _fitting_threads(tensors, options.threads)
        with Journal.of(opened_models, runs.folder, storage) as journal:
            pending_tensors = [matched for matched in tensors if matched.name not in journal.rows]
            # The last ones end at the same time.
            pending_tensors.sort(key=lambda matched: -_bytes(matched))
            with closing(context.reader(opened_models.read)) as reader:
                _compare(context, opened_models, pending_tensors, reader, journal, threads)
            document = document_of(opened_models, tensors, journal.rows, vocabularies)
            journal.remove()
        return document


def _compare(
    context: RunContext,
    models: Models,
    pending: Sequence[MatchedTensor],
    reader: SourceReader,
    journal: Journal,
    threads: int,
) -> None:
    """Compare the tensors that the journal lacks."""
    evaluator = TensorEvaluator(
        reader, held_bytes=_held_bytes(pending), needs_torch=models.needs_torch
    )
    progress = _Progress(context, sum(map(_bytes, pending)))
    files = [
        (source_number, file)
        for source_number, source in models.read.items()
        for file in source.files
        if not source.is_streamed(file)
    ]
    context.reporter.doing("comparing the tensors")
    waiting_tensors, start = iter(pending), evaluator.start_thread
    with context.stop.deferred(), one_blas_thread(), _threads(threads, progress, start) as pool:
        tensor_by_future: dict[Future[Any], MatchedTensor] = {}
        while True:
            for matched in waiting_tensors:
                compute_row = partial(_row_of, matched, models, evaluator, progress)
                tensor_by_future[pool.submit(compute_row)] = matched
                if len(tensor_by_future) > threads:
                    break
            if not tensor_by_future:
                return
            finished_futures, _ = wait(tensor_by_future, _WAIT_SECONDS, FIRST_COMPLETED)
            context.stop.check()
            if finished_futures and (changed := reader.changed(files)):
                raise Resumable(
                    Reason.SOURCE_CHANGED,
                    f"{changed[0]} changed while it was compared. Compare again once it stays as "
                    "it is.",
                )
            for future in finished_futures:
                journal.add(tensor_by_future.pop(future).name, future.result())
            context.reporter.reading(progress.done, progress.total)


class _Progress:
    """Counts the bytes that were read, and stops the threads when the comparison has ended."""

    def __init__(self, context: RunContext, total: int) -> None:
        self.done, self.total = 0, total
        self.over = threading.Event()
        self._context, self._lock = context, threading.Lock()

    def moved(self, nbytes: int) -> None:
        """Count bytes.

        Raises:
            CancelledError: the comparison has ended.
        """
        with self._lock:
            self.done += nbytes
        self._context.reporter.heartbeat()
        if self.over.is_set():
            raise CancelledError

    def run_pass(
        self, tensor: Merged | Spilled, function: Callable[[range], Any], sample: bool
    ) -> Iterator[Any]:
        """Yield the results of a pass over a tensor, as `serial_pass` does.

        Raises:
            CancelledError: the comparison has ended.
        """
        for result in serial_pass(tensor, function, sample):
            self.moved(0)
            yield result


@contextmanager
def _threads(
    count: int, progress: _Progress, start: Callable[[], None]
) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; if the code in the context fails, they end at their next piece."""
    with ThreadPoolExecutor(count, "compare", start) as pool:
        try:
            yield pool
        except BaseException:
            progress.over.set()
            pool.shutdown(cancel_futures=True)
            raise


def _row_of(
    matched: MatchedTensor, models: Models, evaluator: TensorEvaluator, progress: _Progress
) -> Row:
    """Compare a tensor, in the calling thread."""
    tensors = (tensor for tensor in matched.tensors if tensor is not None)
    evaluation = evaluator.evaluation_of(tensors, progress.run_pass)
    return TensorComparison(matched, models).compute(evaluation, progress.moved)


def _bytes(matched: MatchedTensor) -> int:
    return sum(
        tensor.nbytes * matched.elements // max(1, tensor.numel)
        for tensor in matched.tensors
        if tensor is not None
    )


def _held_bytes(tensors: Sequence[MatchedTensor]) -> int:
    """Return the bytes of the held values of all tensors that are compared at the same time."""
    bytes_by_tensor = (
        sum(node.held_bytes for tensor in matched.tensors if tensor for node in tensor.nodes())
        for matched in tensors
    )
    return (MOST_THREADS + 1) * max(bytes_by_tensor, default=0)


def _fitting_threads(tensors: Sequence[MatchedTensor], asked: int | None) -> int:
    """Return the number of threads: the requested number, or the number that memory allows.

    Raises:
        InputError: the memory is too small for one thread.
    """
    bytes_by_name = {
        matched.name: int(
            sum(tensor.working_bytes(PIECE_ELEMENTS) for tensor in matched.tensors if tensor)
        )
        for matched in tensors
    }
    name = max(bytes_by_name, key=bytes_by_name.__getitem__, default="")
    largest_need = bytes_by_name.get(name, 0)
    if largest_need > LARGEST_BUFFERS and largest_need > (budget := memory_budget(None)):
        raise refuse(
            "The memory is too small to compute a tensor of a stage",
            where=name,
            expected=f"at least {show_size(largest_need)}",
            found=show_size(budget),
            fix="keep the stage (run … --keep NAME) on a machine with more memory, and compare the "
            "folder OUT/stages/NAME",
        )
    return asked or max(1, min(MOST_THREADS, LARGEST_BUFFERS // max(1, largest_need)))
