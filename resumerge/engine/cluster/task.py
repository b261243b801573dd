"""A task: it computes and publishes one shard, on a worker or on the driver itself.

It computes with `LocalComputation`, like any merge: it has a plan of one shard, a ledger of its own
in a temporary folder, and a folder to write to.
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
from resumerge.engine.resources.resource_errors import DISK_ERRORS, out_of_order
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
        id: an id that is unique in its attempt.
        shard: the shard's number in the run's plan.
        first: number of its first unit in the run's plan.
        endpoint: the task's side of the exchange with the driver.
        plan: the result of `shard_plan`, pickled, so that versions are compared before it is read.
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
    """Compute and publish the shard of a task in a worker of Ray, and return the outcome."""
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
        task: the task.
        node: this machine.
        stop: whether a signal asks to stop.
        inner: a reporter that gets the heartbeats, too.

    Raises:
        Interrupted: a signal asked to stop.
    """
    started = time.monotonic()
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
        stopped = out_of_order(error)
        return Failed(node, stopped.reason, stopped.message)
    except MemoryError as error:
        return Failed(node, Reason.OOM, f"out of memory: {error}")
    except Exception as error:
        return Failed(node, Reason.ERROR, f"{type(error).__name__}: {error}")
    [shard] = plan.shards
    seconds = time.monotonic() - started
    traffic = reader.ranges.bytes_received, reader.ranges.requests
    return Finished(node, record, shard.nbytes, seconds, peak_rss(), *traffic)


def _compute(
    context: RunContext, task: ShardTask, plan: Plan, reader: SourceReader, folder: Path
) -> ShardRecord:
    """Merge the plan in the task's own folder, with a temporary ledger."""
    reuse_freed_memory()
    estimated = estimate(plan, context.options.mirror)
    budget = resource_budget(context, plan, estimated, memory_wait=context.options.memory_wait)
    sparse = starts_sparse(estimated, folder, frees=False)
    files = ShardFiles(plan, folder, context.storage, sparse=sparse)
    # The ledger is not in the output, which machines share: SQLite needs a local disk.
    with TemporaryFolder() as state, closing(Ledger.create(state / LEDGER_FILE)) as ledger:
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
        units = tuple(
            UnitCommit.of_row(row, task.first + row["number"]) for row in ledger.units.all()
        )
    return ShardRecord(task.fingerprint, units)


def _run_row(task: ShardTask, folder: Path) -> dict[str, object]:
    """Return the row of ``run`` in the ledger of a task."""
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
    """Return the state folder of tasks on this machine, for its cache of metadata."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "resumerge" / "tasks"
