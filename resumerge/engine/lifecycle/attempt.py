"""An attempt: the work of one process on a run, in the phases recover, execute, finish, publish."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace

from resumerge.engine.context import RunContext
from resumerge.engine.evaluation.input_hashes import content_hashes
from resumerge.engine.execute.budget import ResourceBudget
from resumerge.engine.execute.committer import bytes_committed
from resumerge.engine.execute.computation import Computation
from resumerge.engine.execute.local_computation import LocalComputation
from resumerge.engine.execute.steps import remove_steps
from resumerge.engine.lifecycle.compaction import compact, finish_compaction
from resumerge.engine.lifecycle.companions import model_files, write_companions
from resumerge.engine.linked_stages import link_stages
from resumerge.engine.recovery.damaged_sources import forget_damaged
from resumerge.engine.recovery.published import adopt_published
from resumerge.engine.recovery.recovery import Recovery
from resumerge.engine.resources.allocation_errors import is_out_of_memory, out_of_memory
from resumerge.engine.resources.allocator import give_back_freed_memory, reuse_freed_memory
from resumerge.engine.resources.governor import largest_uncommitted_limit
from resumerge.engine.resources.resource_errors import DISK_ERRORS, as_resumable
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.space_reservation import starts_sparse
from resumerge.engine.timer import Timer
from resumerge.errors import Interrupted, Resumable, ResumergeError, StopSignal
from resumerge.event_kinds import EventKind
from resumerge.host.machine import boot_id, hostname
from resumerge.host.memory import measure_memory, peak_rss, rss
from resumerge.ledger import Ledger, Progress, Sample, take_snapshot
from resumerge.mirror import Replicator
from resumerge.output_path import OutputPath
from resumerge.planning.plan import Plan
from resumerge.remote.range_reader import RangeReader
from resumerge.sizes import counted
from resumerge.sources.reader import SourceReader


@dataclass
class _Record:
    """The facts about an attempt that are written to the ledger when it ends.

    Args:
        number: the attempt's number in the ledger, which `Attempts.start` returned.
        merging_seconds: seconds spent on recovery and on blocks; importing torch and computing
            steps are not counted.
    """

    number: int
    merging_seconds: float = 0.0


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run, which begins after every check has passed.

    Args:
        replicator: copies sealed shards to the mirror during the attempt; None without a mirror.
        restored: whether the ledger was restored from its snapshot. If so, every committed block is
            compared with its hash before anything is computed.
        interrupted: whether the previous attempt did not complete the run. A power cut may have
            lost writes that the disk had acknowledged.
    """

    context: RunContext
    plan: Plan
    ledger: Ledger
    out: OutputPath
    budget: ResourceBudget
    replicator: Replicator | None = None
    restored: bool = False
    interrupted: bool = False

    def run(self) -> tuple[Plan, float]:
        """Complete the output; return the final plan, and the seconds spent merging.

        The final plan differs from `plan` if the ranks of an adapter were undecided (`compaction`).

        Raises:
            Interrupted: a signal stopped the run; committed blocks are kept.
            Resumable: the run cannot continue now; committed blocks are kept.
        """
        with self._journaled() as record:
            self.context.stop.check()
            self.context.reporter.began(record.number, self.budget.memory)
            self._sample(record.number)
            self._recover_and_execute(record)
            attempt = self._compacted() if self.plan.is_undecided else self  # has the final plan
            attempt._finish()
            attempt._publish()
        return attempt.plan, record.merging_seconds

    @contextmanager
    def _journaled(self) -> Iterator[_Record]:
        """Record the attempt's start in the ledger, and its outcome when the context ends."""
        attempt_started = time.monotonic()
        with self.context.stop.deferred():
            record = _Record(
                self.ledger.attempts.start(
                    {
                        "pid": os.getpid(),
                        "host": hostname(),
                        "boot_id": boot_id(),
                        "budget": self.budget.memory,
                        "batch_bytes": largest_uncommitted_limit(self.budget.threads),
                    }
                )
            )
            self.ledger.set_state("running")
        outcome, state = "error", "failed"
        try:
            yield record
            outcome = state = "done"
        except (Interrupted, StopSignal):
            outcome = state = "interrupted"
            raise
        except (ResumergeError, *DISK_ERRORS) as error:
            state = "interrupted"
            stop_error = error if isinstance(error, ResumergeError) else as_resumable(error)
            with suppress(*DISK_ERRORS):
                cause_fact = (
                    {"cause": stop_error.reason} if isinstance(stop_error, Resumable) else {}
                )
                self.ledger.events.add(EventKind.STOPPED, reason=str(stop_error), **cause_fact)
            raise stop_error from error
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            outcome, state = "oom", "interrupted"
            raise out_of_memory(error) from error
        finally:
            if self.replicator is not None:
                self.replicator.close()
            ignored_errors = () if outcome == "done" else DISK_ERRORS
            with suppress(*ignored_errors), self.context.stop.deferred():
                if self.replicator is not None and outcome != "done":
                    self.context.reporter.note(self.replicator.handover_summary())
                self.ledger.attempts.end(
                    record.number,
                    outcome,
                    peak_rss=peak_rss(),
                    seconds=time.monotonic() - attempt_started,
                    merging_seconds=record.merging_seconds,
                )
                self.ledger.set_state(state)
                take_snapshot(self.ledger, self.context.storage)

    def _sample(self, number: int) -> None:
        """Add the first sample of memory to the ledger, before the governor sets a limit."""
        sample = Sample(
            rss=rss(),
            available=measure_memory().available,
            budget=self.budget.memory,
            batch_bytes=0,
            bytes_done=bytes_committed(self.plan.units, self.ledger.units.progress()),
        )
        self.ledger.samples.add(number, sample)

    def _recover_and_execute(self, record: _Record) -> None:
        """Recover the output, then compute and commit all pending blocks."""
        give_back_freed_memory()  # planning has freed the headers that it read
        reuse_freed_memory()
        reporter = self.context.reporter
        is_sparse = starts_sparse(
            self.budget.estimate, self.out.folder, frees=self.context.frees_shards
        )
        files = self.context.shard_files(self.plan, self.out.folder, sparse=is_sparse)
        reader = self.context.reader(self.plan.sources)
        with closing(files), self._counting(reader.ranges), closing(reader):
            reporter.doing("comparing downloads with their hashes")
            forget_damaged(self.plan, self.ledger, self.context.metadata, self._check_in)
            timer = Timer()
            reporter.doing("comparing the output with the ledger")
            if self.plan.adapter is not None and self.plan.adapter.highest:
                finish_compaction(self.plan, self.out.folder, self.context.storage)
            if not self.out.is_file:
                adopt_published(self.plan, self.ledger, files, self._report_reading)
            progress = self._recover(files)
            self._compute(record.number, files, reader, progress, timer)
            if suspect_units := self._suspects_at_the_end(progress):
                reporter.doing("checking what was committed before the interruption")
                progress = self._run_recovery(files, suspect_units)
                self.ledger.events.add(EventKind.RECHECKED, units=len(suspect_units))
                if not all(unit.checksum for unit in progress):
                    self._compute(record.number, files, reader, progress, timer)
            record.merging_seconds = timer.seconds
            if files.unlinked:
                reporter.note(
                    f"{counted(len(files.unlinked), 'file')} copied, not linked: the system allows "
                    "no hard links here, because of another owner, another mount, or the filesystem"
                )

    def _compacted(self) -> Attempt:
        """Compact the adapter, and return this attempt with the compacted adapter's plan.

        Compaction removes directions that are zeros. All changes of the adapter are computed by
        now; they determine its ranks.
        """
        self.context.reporter.doing("leaving out what is not kept")
        storage = self.context.storage
        plan = compact(self.plan, self.out.folder, self.ledger, storage, self._report_reading)
        if self.replicator is not None:
            self.replicator.sealed(0)
        return replace(self, plan=plan)

    @contextmanager
    def _counting(self, ranges: RangeReader) -> Iterator[None]:
        """Record the streamed bytes, even if the merge fails: some servers charge for them."""
        ignored_errors: tuple[type[Exception], ...] = DISK_ERRORS
        try:
            yield
            ignored_errors = ()
        finally:
            if ranges.requests:
                with suppress(*ignored_errors), self.context.stop.deferred():
                    streamed_facts = {"bytes": ranges.bytes_received, "requests": ranges.requests}
                    self.ledger.events.add(EventKind.STREAMED, **streamed_facts)

    def _recover(self, files: ShardFiles) -> list[Progress]:
        """Bring shards and ledger into agreement, and return the progress of every unit."""
        compares_committed = self.restored or (self._is_suspicious and self.replicator is not None)
        progress = self._run_recovery(
            files, _committed(self.ledger.units.progress()) if compares_committed else set()
        )
        if self.restored:
            self.ledger.events.add(EventKind.LEDGER_RECONCILED)
        return progress

    def _suspects_at_the_end(self, before: list[Progress]) -> set[int]:
        """Return the numbers of the units whose committed blocks are compared at the attempt's end.

        With a mirror the result is empty. These units were compared when the attempt began, because
        sealed shards are uploaded during the attempt, and may be deleted here.
        """
        if self.restored or self.replicator is not None or not self._is_suspicious:
            return set()
        return _committed(before)

    @property
    def _is_suspicious(self) -> bool:
        """Whether blocks that were committed before this attempt are read again and compared."""
        return self.interrupted and not self.context.options.no_recheck

    def _run_recovery(self, files: ShardFiles, suspects: set[int]) -> list[Progress]:
        return Recovery(
            self.plan,
            self.ledger,
            files,
            self.context.storage,
            suspects,
            self._report_reading,
            creates_later=self.context.frees_shards or self.context.options.ray is not None,
        ).run()

    def _compute(
        self,
        number: int,
        files: ShardFiles,
        reader: SourceReader,
        progress: list[Progress],
        timer: Timer,
    ) -> None:
        """Compute, write and commit all pending blocks."""
        if self.replicator is not None:
            self.replicator.start()
        computation_type: type[Computation] = LocalComputation
        if self.context.options.ray is not None:
            from resumerge.engine.cluster.computation import ClusterComputation  # few runs need it

            computation_type = ClusterComputation
        computation = computation_type(
            context=self.context,
            plan=self.plan,
            ledger=self.ledger,
            budget=self.budget,
            attempt=number,
            files=files,
            reader=reader,
            replicator=self.replicator,
            timer=timer,
        )
        computation.run(progress)

    def _finish(self) -> None:
        """Remove the files of steps, and record the hashes of local models' files.

        If the output is a folder, its companions and the links to stages are written, too.
        """
        self.context.reporter.doing("finishing")
        remove_steps(self.ledger, self.context.storage)
        self.ledger.set_contents(content_hashes(self.plan, self.ledger))
        if not self.out.is_file:
            write_companions(self.context, self.plan, self.ledger, self.out.folder)
            link_stages(self.context, self.plan, self.ledger, self.out.folder)

    def _publish(self) -> None:
        """Wait until the mirror has every shard, then complete the model there."""
        if self.replicator is not None:
            self.context.reporter.doing(f"waiting for the {self.replicator.store.noun}")
            with self.context.stop.deferred():
                self.replicator.finish(
                    lambda: model_files(self.context, self.plan, self.ledger, self.out.model),
                    self._check_in,
                )

    def _report_reading(self, done: int, total: int) -> None:
        """Report the bytes read so far, and raise `Interrupted` if a signal arrived."""
        self.context.reporter.reading(done, total)
        self.context.stop.check()

    def _check_in(self) -> None:
        """Report activity during long work, and raise `Interrupted` if a signal arrived."""
        self.context.reporter.heartbeat()
        self.context.stop.check()


def _committed(progress: Iterable[Progress]) -> set[int]:
    """Return the numbers of the units that have committed blocks."""
    return {number for number, unit in enumerate(progress) if unit.committed_blocks}
