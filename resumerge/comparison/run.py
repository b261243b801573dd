"""A comparison from the command to its document: tensor by tensor, by all threads, journaled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from typing import Any

from resumerge.comparison.document import document_of
from resumerge.comparison.facts import read_vocabularies
from resumerge.comparison.journal import Journal
from resumerge.comparison.models import MatchedTensor, Models, open_models
from resumerge.comparison.tensor import TensorComparison
from resumerge.engine.context import RunContext
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Reason, Resumable
from resumerge.host.blas import one_blas_thread
from resumerge.host.machine import cores
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.sources.reader import SourceReader
from resumerge.storage import Storage
from resumerge.tensors import Tensor
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.evaluation import Evaluation, HeldValues, MethodCall

MOST_THREADS = 4
"""More threads take memory, and are no faster: they wait for the disk, or for memory itself."""

_WAIT_SECONDS = 0.2


def compare_models(
    models: Sequence[str],
    base: str | None,
    options: Options,
    reporter: Reporter,
    storage: Storage | None = None,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Compare models, and return the document of ``compare --json``.

    A comparison that was stopped goes on where it was, if it is asked for again and no model has
    changed since.

    Args:
        models: references to models, as in a recipe; the others are compared with the first.
        base: a reference to the model that they were made of, if there is one.
        options: the command's options.
        reporter: is told what is done.
        storage: writes the journal.
        stop: the request to stop that signals make.

    Raises:
        InputError: a reference is no model, or its files cannot be read by ranges.
        Interrupted: a signal asked to stop; what was compared is kept.
        Resumable: a model, or the state folder, cannot be used now.
    """
    storage, runs = storage or Storage(), RunStore(options.state_dir)
    context = RunContext(options, reporter, storage, stop or StopRequest(), runs)
    with context.working():
        opened = open_models(context, models, base)
        vocabularies = read_vocabularies(context, opened)
        units = list(opened.units())
        with Journal.of(opened, runs.folder, storage) as journal:
            pending = [unit for unit in units if unit.name not in journal.rows]
            pending.sort(key=lambda unit: -_bytes(unit))  # the last ones end at the same time
            with closing(context.reader(opened.sources)) as reader:
                _compare(context, opened, pending, reader, journal)
            document = document_of(opened, units, journal.rows, vocabularies)
            journal.remove()
        return document


def _compare(
    context: RunContext,
    models: Models,
    pending: Sequence[MatchedTensor],
    reader: SourceReader,
    journal: Journal,
) -> None:
    """Compare what is not in the journal yet."""
    evaluation = Evaluation(reader, Buffers(), _held(pending), _no_method, {})
    progress = _Progress(context, sum(map(_bytes, pending)))
    files = [(s.number, f) for s in models.sources for f in s.files if not s.is_streamed(f)]
    threads = context.options.threads or min(cores(), MOST_THREADS)
    context.reporter.doing("comparing the tensors")
    todo = iter(pending)
    start = _start_torch if models.needs_torch else _start
    with context.stop.deferred(), one_blas_thread(), _threads(threads, progress, start) as pool:
        running: dict[Future[Any], MatchedTensor] = {}
        while True:
            for unit in todo:
                work = TensorComparison(unit, models).compute
                running[pool.submit(work, evaluation, progress.moved)] = unit
                if len(running) > threads:
                    break
            if not running:
                return
            done, _ = wait(running, _WAIT_SECONDS, FIRST_COMPLETED)
            context.stop.check()
            if done and (changed := reader.changed(files)):
                raise Resumable(
                    Reason.SOURCE_CHANGED,
                    f"{changed[0]} changed while it was compared. Compare again once it stays as "
                    "it is.",
                )
            for future in done:
                journal.add(running.pop(future).name, future.result())
            context.reporter.reading(progress.done, progress.total)


class _Progress:
    """How much was read; it stops the threads once the process is asked to stop."""

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


@contextmanager
def _threads(
    count: int, progress: _Progress, start: Callable[[], None]
) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool whose threads end at their next piece if what is inside fails."""
    with ThreadPoolExecutor(count, "compare", start) as pool:
        try:
            yield pool
        except BaseException:
            progress.over.set()
            pool.shutdown(cancel_futures=True)
            raise


def _start() -> None:
    """Prepare a thread that compares stored tensors: there is nothing to do."""


def _start_torch() -> None:
    """Prepare a thread that applies adapters."""
    from resumerge.engine.evaluation.torch_backend import use_one_thread

    use_one_thread()


def _bytes(unit: MatchedTensor) -> int:
    return sum(
        tensor.nbytes * unit.elements // max(1, tensor.numel)
        for tensor in unit.tensors
        if tensor is not None
    )


def _held(units: Sequence[MatchedTensor]) -> HeldValues:
    """Return a cache for the values of the tensors that are compared at once."""
    largest = max((sum(map(_held_bytes, unit.tensors)) for unit in units), default=0)
    return HeldValues((MOST_THREADS + 1) * largest)


def _held_bytes(tensor: Tensor | None) -> int:
    return sum(node.held_bytes for node in tensor.nodes()) if tensor is not None else 0


def _no_method(merged: object) -> MethodCall:
    raise AssertionError(f"a model's tensor has no merge method: {merged}")
