"""The driver's loop: a task for each pending shard, its result journaled, what fails done again."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from resumerge.engine.cluster.connection import Cluster
from resumerge.engine.cluster.exchange.base import Exchange
from resumerge.engine.cluster.journal import ShardJournal
from resumerge.engine.cluster.machines import Machine, TaskRequest, show_machines
from resumerge.engine.cluster.outcomes import (
    Failed,
    Finished,
    Node,
    Outcome,
    WorkerRefused,
)
from resumerge.engine.cluster.retries import Tries, stops_the_run
from resumerge.engine.cluster.running import Heartbeats, RunningTask
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.cluster.task import ShardTask, run_task
from resumerge.engine.execute.computation import Computation
from resumerge.engine.reporter import ProgressUpdate
from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.host.machine import hostname
from resumerge.options.cluster import read_task_resources
from resumerge.planning.plan import Shard
from resumerge.planning.versions import Versions

POLL_SECONDS = 0.25
"""Time between two looks at signals and heartbeats."""

START_SECONDS = 60.0
"""The time that a worker's process may take to start, whatever ``--stall-timeout`` is."""

HEAD_SECONDS, LOST_SECONDS = 5.0, 20.0
"""Time between two looks at the cluster's head, and without an answer until it counts as lost: Ray
would end this process after 60 seconds."""

JOIN_SECONDS = 15.0
"""After this time without a machine that could ever take a task, the user is told. One may still
join (an autoscaler takes minutes), until ``--stall-timeout`` ends the waiting."""


class Driver:
    """The driver's loop over the tasks of one attempt.

    Args:
        computation: the computation whose shards are computed.
        cluster: the cluster that tasks are submitted to.
        journal: journals the results.
        exchange: the exchange with the tasks, open.
        pending: the shards to be computed.
    """

    def __init__(
        self,
        computation: Computation,
        cluster: Cluster,
        journal: ShardJournal,
        exchange: Exchange,
        pending: Sequence[Shard],
    ) -> None:
        self._computation, self._cluster, self._journal = computation, cluster, journal
        self._exchange, self._heartbeats = exchange, Heartbeats(exchange)
        self._context, self._plan = computation.context, computation.plan
        self._ledger, self._reporter = computation.ledger, computation.context.reporter
        self._stop = computation.context.stop
        self._left = {shard.index: shard for shard in pending}
        self._tries = {shard.index: Tries() for shard in pending}
        self._running: dict[Any, RunningTask] = {}
        self._fingerprint = computation.ledger.run()["fingerprint"]
        self._heartbeats_read_at = 0.0
        self._head_asked_at = self._head_answered_at = time.monotonic()
        self._has_worked = self._noted_misfit = False

    def run(self) -> None:
        """Work until every shard is sealed.

        A shard whose tasks have failed too often is computed by this process, after the last task
        has ended: while it computes, it journals no results and reads no heartbeats.

        Raises:
            Interrupted: a signal stopped the run.
            Resumable: the run cannot go on now.
        """
        try:
            for shard in self._left.values():
                self._submit(shard)
            while self._left:
                self._stop.check()
                self._reporter.heartbeat()
                self._exchange.check()
                if self._active():
                    for reference in self._cluster.finished(self._running, POLL_SECONDS):
                        self._ended(self._running.pop(reference), self._cluster.outcome(reference))
                    self._look_at_tasks()
                else:
                    self._compute_here(next(iter(self._left.values())))
        finally:
            for reference in self._running:
                self._cluster.cancel(reference)

    def _submit(self, shard: Shard) -> None:
        """Submit a task for a shard, on a machine where none has failed as long as there is one."""
        self._cluster.answers()  # a machine may have gone, if a task has just failed
        tries, machines = self._tries[shard.index], self._cluster.machines
        request = self._request(tries, machines)
        suited = {machine.id for machine in machines if request.fits(machine)}
        tries.count += 1
        task = self._task(shard, request.threads)
        reference = self._cluster.submit(task, request, tries.avoided(suited))
        self._running[reference] = RunningTask(task, shard, request)

    def _request(self, tries: Tries, machines: Sequence[Machine]) -> TaskRequest:
        """Return the resources that the next task of a shard asks for.

        It asks for all processors of the smallest machine that can take it, unless the options say
        how many.
        """
        options = self._context.options
        further = read_task_resources(options.ray_resources or "{}")
        request = TaskRequest(options.threads or 1, tries.memory or options.memory, further)
        if options.threads:
            return request
        fewest = min((m.cpus for m in machines if request.fits(m)), default=1)
        return replace(request, threads=int(fewest))

    def _task(self, shard: Shard, threads: int | None) -> ShardTask:
        tries = self._tries[shard.index]
        plan = shard_plan(self._plan, shard.index)
        name, options = f"shard{shard.index}-{tries.count}", self._context.options
        return ShardTask(
            id=name,
            shard=shard.index,
            first=shard.first,
            endpoint=self._exchange.endpoint(name, shard),
            fingerprint=self._fingerprint,
            versions=Versions.of_plan(plan),
            plan=pickle.dumps(plan),
            options=replace(
                options,
                ray=None,
                mirror=options.mirror if self._context.frees_shards else None,
                mirror_then_delete=None,
                threads=threads,
                memory=tries.memory or self._context.memory,
            ),
        )

    def _ended(self, running: RunningTask, outcome: Outcome) -> None:
        """Do what follows from the end of a task."""
        task, shard = running.task, running.shard
        if isinstance(outcome, Finished):
            self._computation.reader.ranges.count(outcome.bytes_received, outcome.requests)
            if shard.index not in self._left:
                self._journal.compare(shard, outcome.record, task.id, str(outcome.node))
            elif self._journal.commit(shard, outcome, task.id):
                self._committed(running, outcome)
            elif not running.given_up:
                text = f"{shard.name} is not in the output, or another file is"
                self._failed(running, Failed(outcome.node, Reason.UNPUBLISHED, text))
        elif isinstance(outcome, WorkerRefused):
            self._note_failure(running, str(outcome.node), Reason.REFUSED, str(outcome.differences))
            raise _refused(outcome)
        elif not running.given_up:
            self._failed(running, outcome)

    def _committed(self, running: RunningTask, finished: Finished) -> None:
        shard = running.shard
        del self._left[shard.index]
        self._started(running, finished.node)
        self._ledger.events.add(
            EventKind.TASK_FINISHED,
            task=running.task.id,
            shard=shard.name,
            node=str(finished.node),
            bytes=finished.nbytes,
            seconds=round(finished.seconds, 3),
            peak_rss=finished.peak_rss,
        )
        for other in self._running.values():
            if other.shard is shard:
                self._give_up(other)
        self._report(shard)

    def _failed(self, running: RunningTask, failed: Failed) -> None:
        """Count a failure, and submit the shard again if it may have another try (`run`).

        Raises:
            Resumable: the task would fail anywhere.
        """
        beat = self._heartbeats.last(running)
        node = failed.node or (beat.node if beat else None)
        if failed.reason != Reason.UNSCHEDULED:
            self._started(running, node)
        self._note_failure(running, str(node or ""), failed.reason, failed.message)
        if failed.reason == Reason.HASH_CONFLICT:
            facts = {"shard": running.shard.name, "task": running.task.id, "node": str(node or "")}
            self._ledger.events.add(EventKind.HASH_CONFLICT, **facts, message=failed.message)
        if stops_the_run(failed):
            self._journal.watch.check_all()  # says which tensors are concerned
            raise Resumable(failed.reason, f"{node}: {failed.message}")
        if self._adopt_if_published(running, node):
            return
        self._give_up(running)
        tries = self._tries[running.shard.index]
        budget = beat.budget if beat else 0
        tries.note(failed, node.id if node else "", budget)
        if tries.may_try_again:
            self._submit(running.shard)

    def _adopt_if_published(self, running: RunningTask, node: Node | None) -> bool:
        """Journal the shard of a lost task if it was published; return whether it was."""
        shard = running.shard
        record = self._exchange.record(running.task.id, shard)
        if node is None or record is None or not record.fits(self._plan, shard, self._fingerprint):
            return False
        found = Finished(node, record, shard.nbytes, 0.0, 0)
        if not self._journal.commit(shard, found, running.task.id):
            return False
        for reference in [r for r, other in self._running.items() if other is running]:
            del self._running[reference]
            self._cluster.cancel(reference)
        self._committed(running, found)
        return True

    def _note_failure(self, running: RunningTask, node: str, reason: Reason, message: str) -> None:
        self._ledger.events.add(
            EventKind.TASK_FAILED,
            task=running.task.id,
            shard=running.shard.name,
            node=node,
            reason=reason,
            message=message[:1000],
        )

    def _give_up(self, running: RunningTask) -> None:
        """Have a task end if it is still at work."""
        running.given_up = True
        self._exchange.give_up(running.task.id)
        for reference, other in self._running.items():
            if other is running:
                self._cluster.cancel(reference)

    def _look_at_tasks(self) -> None:
        """Read the heartbeats, and give up tasks that are silent for too long."""
        now = time.monotonic()
        if now - self._heartbeats_read_at < self._exchange.beat_seconds:
            return
        self._heartbeats_read_at = now
        for running in self._heartbeats.read(self._active()):
            if running.beat is not None:
                self._started(running, running.beat.node)
        self._report()
        if now - self._head_asked_at >= HEAD_SECONDS:
            self._head_asked_at = now
            self._look_at_machines(now)
        limit = self._context.options.stall_timeout
        if not limit:
            return
        active = self._active()
        last = max((r.changed for r in active), default=now)
        for running in active:
            # A task that waits for its turn has no heartbeat: it counts if nothing else goes on.
            quiet = now - (running.changed if running.beat else last)
            if running.beat and quiet > limit:
                text = f"no heartbeat for {quiet:.0f} s"
                self._failed(running, Failed(None, Reason.TASK_SILENT, text))
            elif not running.beat and quiet > max(limit, START_SECONDS):
                self._unscheduled(running, quiet)

    def _look_at_machines(self, now: float) -> None:
        """See whether the head answers, and where tasks are, or could be."""
        if not self._cluster.answers():
            self._stop_if_head_is_lost(now - self._head_answered_at)
            return
        self._head_answered_at = now
        machines = self._cluster.machines
        alive = {machine.id for machine in machines}
        for running in self._active():
            if running.beat is not None:
                # Ray waits for the worker of a lost machine as long as its connection seems open.
                if running.beat.node.id not in alive:
                    self._failed(running, Failed(None, Reason.LOST, "its machine is gone"))
            elif any(running.request.fits(machine) for machine in machines):
                running.fitted = now
            elif now - running.fitted > JOIN_SECONDS:
                self._note_misfit(running)

    def _stop_if_head_is_lost(self, seconds: float) -> None:
        if seconds > LOST_SECONDS:
            self._cluster.is_lost = True
            raise Resumable(
                Reason.CLUSTER,
                f"The head of the Ray cluster has not answered for {seconds:.0f} s. "
                "What was published is committed. Start the cluster again, then resume with its "
                "address, or without --ray.",
            )

    def _note_misfit(self, running: RunningTask) -> None:
        """Say, once, that the cluster lacks a machine for what tasks ask for."""
        if not self._noted_misfit:
            self._noted_misfit = True
            self._reporter.note(
                f"No machine of the cluster can take a task. {self._asked_and_found(running)} "
                "Waiting for such a machine to join. If none will, stop and lower --memory or "
                "--threads"
            )

    def _unscheduled(self, running: RunningTask, seconds: float) -> None:
        """Have the driver compute what no machine takes, unless none has ever taken a task.

        Raises:
            Resumable: no machine has ever taken a task.
        """
        why = f"no machine had room for it for {seconds:.0f} s"
        if self._has_worked:
            self._failed(running, Failed(None, Reason.UNSCHEDULED, why))
            return
        raise Resumable(
            Reason.CLUSTER,
            f"{running.shard.name}: {why}. {self._asked_and_found(running)} Ask for less, have "
            "other work there end, or add machines; then resume.",
        )

    def _asked_and_found(self, running: RunningTask) -> str:
        machines = show_machines(self._cluster.machines)
        return f"A task needs {running.request}. The machines have: {machines}."

    def _compute_here(self, shard: Shard) -> None:
        """Compute a shard in this process; until that is done, nothing else is (`run`).

        Raises:
            Interrupted: a signal stopped the run.
            Resumable: this fails, too.
        """
        tries, here = self._tries[shard.index], Node("", hostname())
        why = f"{shard.name} failed {tries.failed} times on the cluster"
        if tries.is_refused:
            why = f"No machine of the cluster takes {shard.name}"
        self._reporter.note(f"{why}: this machine computes it")
        tries.count += 1
        request = TaskRequest(self._computation.budget.threads, tries.memory, {})
        running = RunningTask(self._task(shard, request.threads), shard, request)
        self._started(running, here)
        outcome = run_task(running.task, here, self._stop, self._reporter)
        if isinstance(outcome, Failed):
            self._note_failure(running, str(here), outcome.reason, outcome.message)
            raise Resumable(
                outcome.reason,
                f"{shard.name} cannot be computed, on the cluster or here: {outcome.message}",
            )
        self._ended(running, outcome)
        if shard.index in self._left:
            raise Resumable(
                Reason.CLUSTER,
                f"{shard.name} was computed, but the output folder lacks it or has another file of "
                "that name: another program may be writing there. Stop it, then resume.",
            )

    def _started(self, running: RunningTask, node: Node | None) -> None:
        """Note that a task started, if that is news."""
        if running.started:
            return
        running.started = self._has_worked = True
        facts = {"task": running.task.id, "shard": running.shard.name}
        self._ledger.events.add(EventKind.TASK_STARTED, **facts, node=str(node or ""))

    def _active(self) -> list[RunningTask]:
        """Return the tasks that are not given up."""
        return [running for running in self._running.values() if not running.given_up]

    def _report(self, shard: Shard | None = None) -> None:
        written = sum(running.beat.nbytes for running in self._active() if running.beat)
        total = sum(unit.nbytes for unit in self._plan.units)
        self._reporter.progressed(
            ProgressUpdate(
                min(total, self._journal.bytes_done + written),
                total,
                self._journal.units_done,
                len(self._plan.units),
                shard.name if shard else "",
            )
        )


def _refused(refused: WorkerRefused) -> Resumable:
    return Resumable(
        Reason.CLUSTER,
        f"{refused.node} cannot work on this run:\n"
        + "\n".join(refused.differences)
        + "\nInstall what the driver has on all machines, and have them see the output's folder "
        "under the same path, or reach the bucket; then resume.",
    )
