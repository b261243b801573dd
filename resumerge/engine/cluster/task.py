"""A task, which computes and publishes one shard, on a worker or on the driver.

The shard is computed by `LocalComputation`, like any merge, with a plan of one shard, a temporary
ledger, and the task's own folder as output.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from resumerge.engine.cluster.exchange.base import TaskAbandoned, TaskEndpoint
from resumerge.engine.cluster.outcomes import (
    Failed,
    Finished,
    Node,
    Outcome,
    WorkerRefused,
)
from resumerge.engine.cluster.task_reporter import TaskReporter
from resumerge.engine.context import RunContext
from resumerge.engine.execute.budget import resource_budget
from resumerge.engine.execute.local_computation import LocalComputation
from resumerge.engine.opening.plan_rows import shard_rows, source_rows, unit_rows
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.allocator import reuse_freed_memory
from resumerge.engine.resources.resource_errors import DISK_ERRORS, as_resumable
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.engine.shards.space_reservation import starts_sparse
from resumerge.errors import InputError, Interrupted, Reason, Resumable
from resumerge.host.machine import boot_id, hostname
from resumerge.host.memory import peak_rss
from resumerge.ledger import LEDGER_FILE, Ledger, UnitCommit, now
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import Plan, estimate
from resumerge.planning.versions import Versions
from resumerge.sources.reader import SourceReader
from resumerge.sources.remote.files import on_this_machine
from resumerge.storage import Storage


@dataclass(frozen=True)
class ShardTask:
    """The arguments of a task.

    Args:
        id: an id that is unique in the attempt.
        shard: the shard's number in the run's plan.
        first: the number of the shard's first unit in the run's plan.
        endpoint: the task's side of the exchange with the driver.
        fingerprint: the fingerprint of the run, which the task's record repeats.
        versions: the versions that the plan was made with.
        plan: the result of `shard_plan`, pickled. A worker compares versions before it unpickles
            the plan.
        options: the run's options, with the memory and threads of the task.
    """

    id: str
    shard: int
    first: int
    endpoint: TaskEndpoint
    fingerprint: str
    versions: Versions
    plan: bytes
    options: Options


def run_on_worker(task: ShardTask) -> Outcome:
    """Compute and publish the shard of a task in a Ray worker, after checking this machine."""
    import ray

    node = Node(ray.get_runtime_context().get_node_id(), hostname())
    if differences := task.versions.differences("at the driver"):
        return WorkerRefused(node, tuple(differences))
    if obstacle := task.endpoint.obstacle(node):
        return WorkerRefused(node, (obstacle,))
    return run_task(task, node, StopRequest())


def run_task(
    task: ShardTask, node: Node, stop: StopRequest, inner: Reporter | None = None
) -> Outcome:
    """Compute and publish the shard of a task on this machine, without comparing versions.

    Args:
        task: the task, whose plan is unpickled here.
        node: this machine, which heartbeats and the outcome name.
        stop: the request to stop that signals set.
        inner: a reporter that also receives the heartbeats; None outside the driver.

    Raises:
        Interrupted: a signal asked to stop.
    """
    task_started = time.monotonic()
    try:
        with task.endpoint.working_folder() as folder:
            reporter = TaskReporter(task.endpoint, node, inner)
            plan: Plan = pickle.loads(task.plan)
            plan = replace(plan, sources=tuple(map(on_this_machine, plan.sources)))
            context = RunContext(task.options, reporter, Storage(), stop, RunStore(_state_folder()))

            def moved(nbytes: int) -> None:
                reporter.heartbeat()
                stop.check()

            with closing(context.reader(plan.sources)) as reader:
                record = _compute(context, task, plan, reader, folder)
            record = task.endpoint.publish(plan, record, reporter.last, moved)
    except (Interrupted, KeyboardInterrupt):
        raise
    except TaskAbandoned as error:
        return Failed(node, Reason.ABANDONED, str(error))
    except Resumable as error:
        return Failed(node, error.reason, error.message)
    except InputError as error:
        return Failed(node, Reason.REFUSED, str(error))
    except DISK_ERRORS as error:
        stop_error = as_resumable(error)
        return Failed(node, stop_error.reason, stop_error.message)
    except MemoryError as error:
        return Failed(node, Reason.OOM, f"out of memory: {error}")
    except Exception as error:
        return Failed(node, Reason.ERROR, f"{type(error).__name__}: {error}")
    [shard] = plan.shards
    seconds = time.monotonic() - task_started
    streamed_counts = reader.ranges.bytes_received, reader.ranges.requests
    return Finished(node, record, shard.nbytes, seconds, peak_rss(), *streamed_counts)


def _compute(
    context: RunContext, task: ShardTask, plan: Plan, reader: SourceReader, folder: Path
) -> ShardRecord:
    """Merge the task's plan in `folder`, with a temporary ledger, and return the hashes."""
    reuse_freed_memory()
    plan_estimate = estimate(plan, context.options.mirror)
    budget = resource_budget(context, plan, plan_estimate, memory_wait=context.options.memory_wait)
    is_sparse = starts_sparse(plan_estimate, folder, frees=False)
    files = ShardFiles(plan, folder, context.storage, sparse=is_sparse)
    # SQLite needs a local disk, so the ledger is not in the output's folder, which may be shared.
    with (
        TemporaryFolder() as state_folder,
        closing(Ledger.create(state_folder / LEDGER_FILE)) as ledger,
    ):
        ledger.begin(_run_row(task, folder), source_rows(plan), shard_rows(plan), unit_rows(plan))
        attempt = ledger.attempts.start(
            {"pid": os.getpid(), "host": hostname(), "boot_id": boot_id(), "budget": budget.memory}
        )
        context.reporter.began(attempt, budget.memory)
        files.create(plan.shards[0])
        with closing(files):
            computation = LocalComputation(
                context=context,
                plan=plan,
                ledger=ledger,
                budget=budget,
                attempt=attempt,
                files=files,
                reader=reader,
            )
            computation.run(ledger.units.progress())
        context.stop.check()
        unit_commits = tuple(
            UnitCommit.of_row(row, task.first + row["number"]) for row in ledger.units.all()
        )
    return ShardRecord(task.fingerprint, unit_commits)


def _run_row(task: ShardTask, folder: Path) -> dict[str, object]:
    """Return the row of the table ``run`` in the ledger of a task."""
    return {
        "id": task.id,
        "created": now(),
        "config_path": str(folder),
        "config_text": "",
        "output": str(folder),
        "fingerprint": task.fingerprint,
        "fingerprint_parts": "{}",
        "options": json.dumps({"trust_sources": task.options.trust_sources}),
        "versions": "{}",
        "host": hostname(),
        "state": "running",
    }


def _state_folder() -> Path:
    """Return the state folder of tasks on this machine, which holds their metadata cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "resumerge" / "tasks"
