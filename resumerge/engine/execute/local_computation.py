"""The computation of a plan's pending units in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.input_hashes import are_hashed
from resumerge.engine.evaluation.source_watch import SourceWatch
from resumerge.engine.execute.committer import Committer
from resumerge.engine.execute.computation import Computation
from resumerge.engine.execute.eviction import DownloadEvictor
from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.execute.page_cache import PageCache
from resumerge.engine.execute.scheduler import Scheduler
from resumerge.engine.execute.steps import StepRunner
from resumerge.engine.execute.work_queue import WorkQueue, download_order
from resumerge.engine.resources.governor import Governor
from resumerge.engine.shards.space_reservation import SpaceReservation
from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.host.memory import rss
from resumerge.ledger import Progress
from resumerge.planning.plan import Unit
from resumerge.sources.remote.prefetch import Prefetcher


class LocalComputation(Computation):
    """A computation in this process; it also handles downloads, steps, disk space and memory."""

    def run(self, progress: Sequence[Progress]) -> None:
        context = self.context
        space = SpaceReservation(
            self.plan, self.files, progress, self.replicator if context.frees_shards else None
        )
        evictor = DownloadEvictor(
            self.plan,
            self.ledger,
            context.metadata,
            self.reader,
            progress,
            evict=bool(context.options.evict),
        )
        evictor.evict_unneeded()
        with self._prefetcher(progress, evictor, space) as prefetcher:
            with self.timer.paused():
                evaluator = self._prepare(progress, prefetcher)
            # A signal handler that raises while a thread starts makes Python's threading raise a
            # KeyError.
            with context.stop.deferred(), self._governor() as governor:
                execution = self._execution(progress, governor)
                page_cache = PageCache(execution)
                queue = WorkQueue(execution, prefetcher, space)
                committer = Committer(execution, page_cache, evictor.committed, self.sealed)
                self._merge(
                    Scheduler(execution, evaluator, queue, committer, page_cache), execution.watch
                )

    def _prepare(self, progress: Sequence[Progress], prefetcher: Prefetcher) -> Evaluator:
        """Import the modules that compute, and compute all steps before the first block."""
        context = self.context
        context.reporter.doing("merging")
        with context.stop.between_imports():
            evaluator = Evaluator(
                self.plan,
                self.budget.estimate,
                self.reader,
                self.budget.device,
                hashes=are_hashed(self.ledger),
            )
        steps = StepRunner(context, self.plan, self.ledger, evaluator, self.budget.threads)
        steps.run(self._pending(progress), prefetcher)
        context.reporter.doing("merging")
        return evaluator

    def _governor(self) -> Governor:
        """Return the governor for the blocks; all steps are done and need no more memory."""
        memory_need = replace(self.budget.predicted.need, process=rss(), steps=0, least_steps=0)
        return Governor(
            self.budget.memory,
            memory_need,
            record_event=self.ledger.events.add,
            waiting=self.context.reporter.waiting,
            memory_wait=self.context.options.memory_wait,
            threads=self.budget.threads,
        )

    def _execution(self, progress: Sequence[Progress], governor: Governor) -> ExecutionContext:
        context = self.context
        return ExecutionContext(
            plan=self.plan,
            estimate=self.budget.estimate,
            ledger=self.ledger,
            attempt=self.attempt,
            progress=progress,
            files=self.files,
            reader=self.reader,
            watch=SourceWatch(self.plan, self.ledger, self.reader),
            storage=context.storage,
            governor=governor,
            reporter=context.reporter,
            stop=context.stop,
            threads=self.budget.threads,
            measures=not context.options.no_accounts,
        )

    @staticmethod
    def _merge(scheduler: Scheduler, watch: SourceWatch) -> None:
        """Compute and commit every pending block, then check that no source changed meanwhile."""
        try:
            scheduler.run()
        except Resumable as error:
            if error.reason != Reason.SOURCE_CHANGED:
                watch.check_all()  # an unreadable file may have been replaced
            raise
        watch.check_all()

    def _prefetcher(
        self, progress: Sequence[Progress], evictor: DownloadEvictor, space: SpaceReservation
    ) -> Prefetcher:
        """Return the downloader of the files that companions and pending units are made of."""
        reference = self.plan.reference_model
        companion_files = [(reference, name) for name in reference.companions]
        pending_units = self._pending(progress)
        return Prefetcher(
            [
                *companion_files,
                *download_order(self.plan, pending_units, by_shard=self.context.frees_shards),
            ],
            self.context.metadata,
            offline=self.context.options.offline,
            evicting=bool(self.context.options.evict),
            on_start=evictor.started,
            on_event=self._note_event,
            reserved_bytes=space.reserved_bytes,
        )

    def _note_event(self, kind: EventKind, **facts: Any) -> None:
        """Record a download's event in the ledger, and tell the user of a damaged cached file."""
        self.ledger.events.add(kind, **facts)
        if kind == EventKind.SOURCE_DAMAGED:
            consequence = "" if self.context.options.offline else ", and is downloaded again"
            stream_note = " (it was stored before: --stream stores no other)"
            self.context.reporter.note(
                f"The cached file {facts['file']} of {facts['model']} is damaged{consequence}"
                + (stream_note if self.context.options.stream else "")
            )

    def _pending(self, progress: Sequence[Progress]) -> list[Unit]:
        """Return the units that have uncommitted blocks."""
        return [
            unit
            for unit, unit_progress in zip(self.plan.units, progress)
            if not unit_progress.is_complete
        ]
