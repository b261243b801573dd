"""The driver's loop: it submits a task for each pending shard, and handles results and failures."""

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
"""Seconds between two iterations of the loop."""

START_SECONDS = 60.0
"""Seconds that a worker's process may take to start, even if ``--stall-timeout`` is shorter."""

HEAD_SECONDS, LOST_SECONDS = 5.0, 20.0
"""Seconds between two requests to the cluster's head, and seconds without an answer after which the
head counts as lost. Ray itself would end this process after 60 seconds."""

JOIN_SECONDS = 15.0
"""Seconds after which a note reports that no machine of the cluster has the resources of a task. A
larger machine may still join before ``--stall-timeout`` is over: an autoscaler takes minutes."""


class Driver:
    """The driver's loop over the tasks of one attempt.

    Args:
        computation: the computation that is carried out; it gives context, plan, ledger and budget.
        cluster: the cluster that runs the tasks; this process is connected to it.
        journal: the journal that commits results, and knows the hashes that are committed.
        exchange: the exchange with the tasks, which is open already.
        pending: the shards to compute, none of which is sealed.
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
        self._unfinished = {shard.number: shard for shard in pending}
        self._tries = {shard.number: Tries() for shard in pending}
        self._running: dict[Any, RunningTask] = {}
        """The running tasks, by the futures of their outcomes."""
        self._fingerprint = computation.ledger.run()["fingerprint"]
        self._heartbeats_read_at = 0.0
        self._head_asked_at = self._head_answered_at = self._last_progress = time.monotonic()
        self._any_task_started = self._noted_misfit = False

    def run(self) -> None:
        """Run tasks until every shard is sealed.

        If the tasks of a shard fail too often, this process computes the shard itself. It first
        waits until no other task is active, because it cannot read heartbeats or journal results
        meanwhile.

        Raises:
            Interrupted: a signal stopped the run.
            Resumable: the run cannot continue now.
        """
        try:
            for shard in self._unfinished.values():
                self._submit(shard)
            while self._unfinished:
                self._stop.check()
                self._reporter.heartbeat()
                self._exchange.check()
                if self._active():
                    for future in self._cluster.finished(self._running, POLL_SECONDS):
                        outcome = self._cluster.outcome(future)
                        self._handle_end(self._running.pop(future), outcome)
                    self._check_tasks()
                else:
                    self._compute_here(next(iter(self._unfinished.values())))
        finally:
            for future in self._running:
                self._cluster.cancel(future)

    def _submit(self, shard: Shard) -> None:
        """Submit a task for a shard, if possible to a machine where no task of the shard failed."""
        self._cluster.answers()  # updates the machines: a task may have failed with its machine
        tries, machines = self._tries[shard.number], self._cluster.machines
        request = self._request(tries, machines)
        suited_nodes = {machine.id for machine in machines if request.fits(machine)}
        tries.count += 1
        task = self._task(shard, request.threads)
        future = self._cluster.submit(task, request, tries.avoided(suited_nodes))
        self._running[future] = RunningTask(task, shard, request)

    def _request(self, tries: Tries, machines: Sequence[Machine]) -> TaskRequest:
        """Return the resources to request for the next task of a shard.

        Without ``--threads``, these include all processors of the smallest machine that has the
        other resources.
        """
        options = self._context.options
        custom_resources = read_task_resources(options.ray_resources or "{}")
        memory = tries.memory or options.memory  # not the limit of this process after an OOM kill
        request = TaskRequest(options.threads or 1, memory, custom_resources)
        if options.threads:
            return request
        processors = min((machine.cpus for machine in machines if request.fits(machine)), default=1)
        return replace(request, threads=int(processors))

    def _task(self, shard: Shard, threads: int | None) -> ShardTask:
        tries = self._tries[shard.number]
        plan = shard_plan(self._plan, shard.number)
        task_id, options = f"shard{shard.number}-{tries.count}", self._context.options
        return ShardTask(
            id=task_id,
            shard=shard.number,
            first=shard.first,
            endpoint=self._exchange.endpoint(task_id, shard),
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

    def _handle_end(self, running: RunningTask, outcome: Outcome) -> None:
        """Journal the result of a task that has ended, or handle its failure."""
        self._last_progress = time.monotonic()
        task, shard = running.task, running.shard
        if isinstance(outcome, Finished):
            self._computation.reader.ranges.count(outcome.bytes_received, outcome.requests)
            if shard.number not in self._unfinished:
                self._journal.compare(shard, outcome.record, task.id, str(outcome.node))
            elif self._journal.commit(shard, outcome, task.id):
                self._finish_shard(running, outcome)
            elif not running.given_up:
                message = f"{shard.name} is not in the output, or another file is"
                self._handle_failure(running, Failed(outcome.node, Reason.UNPUBLISHED, message))
        elif isinstance(outcome, WorkerRefused):
            self._note_failure(running, str(outcome.node), Reason.REFUSED, str(outcome.differences))
            raise _refusal(outcome)
        elif not running.given_up:
            self._handle_failure(running, outcome)

    def _finish_shard(self, running: RunningTask, finished: Finished) -> None:
        """Record that a shard is committed, and give up its other tasks."""
        shard = running.shard
        del self._unfinished[shard.number]
        self._note_start(running, finished.node)
        self._ledger.events.add(
            EventKind.TASK_FINISHED,
            task=running.task.id,
            shard=shard.name,
            node=str(finished.node),
            bytes=finished.nbytes,
            seconds=round(finished.seconds, 3),
            peak_rss=finished.peak_rss,
        )
        for other_task in self._running.values():
            if other_task.shard is shard:
                self._give_up(other_task)
        self._report(shard)

    def _handle_failure(self, running: RunningTask, failed: Failed) -> None:
        """Record the failure of a task, and submit its shard again if the tries are not used up.

        Raises:
            Resumable: the task would fail on every machine.
        """
        beat = self._heartbeats.last(running)
        node = failed.node or (beat.node if beat else None)
        if failed.reason != Reason.UNSCHEDULED:
            self._note_start(running, node)
        self._note_failure(running, str(node or ""), failed.reason, failed.message)
        if failed.reason == Reason.HASH_CONFLICT:
            event_facts = {
                "shard": running.shard.name,
                "task": running.task.id,
                "node": str(node or ""),
            }
            self._ledger.events.add(EventKind.HASH_CONFLICT, **event_facts, message=failed.message)
        if stops_the_run(failed):
            self._journal.watch.check_all()  # raises an error that names the tensors concerned
            raise Resumable(failed.reason, f"{node}: {failed.message}")
        if self._adopt_if_published(running, node):
            return
        self._give_up(running)
        tries = self._tries[running.shard.number]
        budget = beat.budget if beat else 0
        tries.record_failure(failed, node.id if node else "", budget)
        if tries.may_retry:
            self._submit(running.shard)

    def _adopt_if_published(self, running: RunningTask, node: Node | None) -> bool:
        """Journal the shard of a lost task if the task published it, and return whether it did."""
        shard = running.shard
        record = self._exchange.record(running.task.id, shard)
        if node is None or record is None or not record.fits(self._plan, shard, self._fingerprint):
            return False
        finished = Finished(node, record, shard.nbytes, 0.0, 0)
        if not self._journal.commit(shard, finished, running.task.id):
            return False
        for future in [
            future for future, other_task in self._running.items() if other_task is running
        ]:
            del self._running[future]
            self._cluster.cancel(future)
        self._finish_shard(running, finished)
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
        """Mark a task as given up, and cancel it if it is still running."""
        running.given_up = True
        self._exchange.give_up(running.task.id)
        for future, other_task in self._running.items():
            if other_task is running:
                self._cluster.cancel(future)

    def _check_tasks(self) -> None:
        """Read the heartbeats, and handle as failed the tasks that were silent for too long."""
        now = time.monotonic()
        if now - self._heartbeats_read_at < self._exchange.beat_seconds:
            return
        self._heartbeats_read_at = now
        for running in self._heartbeats.read(self._active()):
            if running.beat is not None:
                self._note_start(running, running.beat.node)
        self._report()
        if now - self._head_asked_at >= HEAD_SECONDS:
            self._head_asked_at = now
            self._check_machines(now)
        stall_seconds = self._context.options.stall_timeout
        if not stall_seconds:
            return
        active_tasks = self._active()
        self._last_progress = max(
            (self._last_progress, *(active_task.changed for active_task in active_tasks))
        )
        for running in active_tasks:
            # A task that waits for a machine sends no heartbeats. It is late only if no other task
            # makes progress.
            quiet_seconds = now - (running.changed if running.beat else self._last_progress)
            if running.beat and quiet_seconds > stall_seconds:
                message = f"no heartbeat for {quiet_seconds:.0f} s"
                self._handle_failure(running, Failed(None, Reason.TASK_SILENT, message))
            elif not running.beat and quiet_seconds > max(stall_seconds, START_SECONDS):
                self._handle_unscheduled(running, quiet_seconds)

    def _check_machines(self, now: float) -> None:
        """Update the list of machines, and handle tasks whose machine is lost or missing."""
        if not self._cluster.answers():
            self._stop_if_head_is_lost(now - self._head_answered_at)
            return
        self._head_answered_at = now
        machines = self._cluster.machines
        live_nodes = {machine.id for machine in machines}
        for running in self._active():
            if running.beat is not None:
                # Ray waits for a worker on a lost machine as long as the connection seems open.
                if running.beat.node.id not in live_nodes:
                    self._handle_failure(running, Failed(None, Reason.LOST, "its machine is gone"))
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
        """Report once that no machine of the cluster has the resources of a task."""
        if not self._noted_misfit:
            self._noted_misfit = True
            self._reporter.note(
                f"No machine of the cluster can take a task. {self._request_and_machines(running)} "
                "Waiting for such a machine to join. If none will, stop and lower --memory or "
                "--threads"
            )

    def _handle_unscheduled(self, running: RunningTask, seconds: float) -> None:
        """Handle a task that no machine has taken as failed, so that the driver computes its shard.

        Raises:
            Resumable: no machine has taken any task in this attempt.
        """
        reason = f"no machine had room for it for {seconds:.0f} s"
        if self._any_task_started:
            self._handle_failure(running, Failed(None, Reason.UNSCHEDULED, reason))
            return
        raise Resumable(
            Reason.CLUSTER,
            f"{running.shard.name}: {reason}. {self._request_and_machines(running)} Ask for less, "
            "have other work there end, or add machines; then resume.",
        )

    def _request_and_machines(self, running: RunningTask) -> str:
        machines = show_machines(self._cluster.machines)
        return f"A task needs {running.request}. The machines have: {machines}."

    def _compute_here(self, shard: Shard) -> None:
        """Compute a shard in this process, as `run_task` does on a worker.

        Raises:
            Interrupted: a signal stopped the run.
            Resumable: the computation fails here too, or the output lacks the computed shard.
        """
        tries, this_node = self._tries[shard.number], Node("", hostname())
        reason = f"{shard.name} failed {tries.failed} times on the cluster"
        if tries.is_refused:
            reason = f"No machine of the cluster takes {shard.name}"
        self._reporter.note(f"{reason}: this machine computes it")
        tries.count += 1
        request = TaskRequest(self._computation.budget.threads, tries.memory, {})
        running = RunningTask(self._task(shard, request.threads), shard, request)
        self._note_start(running, this_node)
        outcome = run_task(running.task, this_node, self._stop, self._reporter)
        if isinstance(outcome, Failed):
            self._note_failure(running, str(this_node), outcome.reason, outcome.message)
            raise Resumable(
                outcome.reason,
                f"{shard.name} cannot be computed, on the cluster or here: {outcome.message}",
            )
        self._handle_end(running, outcome)
        if shard.number in self._unfinished:
            raise Resumable(
                Reason.CLUSTER,
                f"{shard.name} was computed, but the output folder lacks it or has another file of "
                "that name: another program may be writing there. Stop it, then resume.",
            )

    def _note_start(self, running: RunningTask, node: Node | None) -> None:
        """Record in the ledger that a task started, unless that is already recorded."""
        if running.started:
            return
        running.started = self._any_task_started = True
        event_facts = {"task": running.task.id, "shard": running.shard.name}
        self._ledger.events.add(EventKind.TASK_STARTED, **event_facts, node=str(node or ""))

    def _active(self) -> list[RunningTask]:
        """Return the running tasks that were not given up."""
        return [running for running in self._running.values() if not running.given_up]

    def _report(self, shard: Shard | None = None) -> None:
        written_bytes = sum(running.beat.nbytes for running in self._active() if running.beat)
        total_bytes = sum(unit.nbytes for unit in self._plan.units)
        self._reporter.progressed(
            ProgressUpdate(
                min(total_bytes, self._journal.bytes_done + written_bytes),
                total_bytes,
                self._journal.units_done,
                len(self._plan.units),
                shard.name if shard else "",
            )
        )


def _refusal(refused: WorkerRefused) -> Resumable:
    return Resumable(
        Reason.CLUSTER,
        f"{refused.node} cannot work on this run:\n"
        + "\n".join(refused.differences)
        + "\nInstall what the driver has on all machines, and have them see the output's folder "
        "under the same path, or reach the bucket; then resume.",
    )
