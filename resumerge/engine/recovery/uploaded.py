"""Shards that tasks of a cluster uploaded to a bucket, and that are not yet in the ledger.

A task and its driver communicate through one small object. The driver creates the object. The task
replaces its content with heartbeats, and after the upload of its shard with the record of the
hashes. If the driver dies before it journals the shard, the process that continues the run finds
the shard and the record.

    DEST/.resumerge/task-TTTTTT-shardN-TRY.json    TTTTTT is the fencing token of the driver
"""

from __future__ import annotations

from collections.abc import Callable

from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.ledger import Ledger
from resumerge.mirror.names import TaskName, task_names
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.planning.plan import Plan, Shard

LARGEST_RECORD = 1 << 28
"""The largest accepted record in bytes. The record of a 5 GB shard has about 2 MB."""

RECORD = "record"
"""The key of the record in a task's object."""


def adopt_uploaded(
    plan: Plan,
    ledger: Ledger,
    files: ShardFiles,
    store: BucketStore,
    token: int,
    check_lease: Callable[[], None],
) -> tuple[list[int], list[str]]:
    """Journal uploaded shards that are not in the ledger, and delete useless objects of tasks.

    Args:
        plan: the plan of the run, which records must fit.
        ledger: the ledger in which the shards are sealed, and recorded as files of the mirror.
        files: the files of the plan's shards; the partial file of a journaled shard is deleted.
        store: the bucket of the run's mirror, which holds shards and objects of tasks.
        token: the fencing token of this machine. Objects of tasks with a higher token are not
            changed.
        check_lease: raises if another machine has taken over the mirror.

    Returns:
        (numbers of the journaled shards, names of task objects to delete). These objects may be
        deleted once a snapshot in the mirror contains the shards.

    Raises:
        InputError: the bucket cannot be used.
        Resumable: the bucket cannot be used now.
    """
    tasks = [task for task in task_names(retry_store(store, store.list)) if task.token <= token]
    fingerprint = ledger.run()["fingerprint"]
    open_shards = {row["number"] for row in ledger.shards.all() if row["state"] != "sealed"}
    progress = ledger.units.progress()
    adopted_numbers: list[int] = []
    superfluous_tasks, removed_objects = [], []
    for task in tasks:
        record = retry_store(store, lambda: uploaded_record(store, task))  # noqa: B023, called now
        shard = plan.shards[task.shard] if task.shard < len(plan.shards) else None
        if record is None or shard is None or not record.fits(plan, shard, fingerprint):
            removed_objects.append(task.name)
        elif shard.number not in open_shards or shard.number in adopted_numbers:
            superfluous_tasks.append(task.name)
        elif record.contradicts(progress):  # committed blocks take precedence
            removed_objects += [shard.name, task.name]
        elif retry_store(store, lambda: is_uploaded(store, shard, record)):  # noqa: B023
            ledger.shards.adopt_computed(shard.number, record.units, record.mirrored)
            files.remove(shard)
            adopted_numbers.append(shard.number)
            superfluous_tasks.append(task.name)
        else:
            removed_objects.append(task.name)

    def remove() -> None:
        check_lease()
        store.put({}, removed_objects)

    if removed_objects:
        retry_store(store, remove)
    return adopted_numbers, superfluous_tasks


def uploaded_record(store: BucketStore, task: TaskName) -> ShardRecord | None:
    """Return the record of the shard that a task uploaded, or None.

    Raises:
        OSError: the bucket cannot be read now.
    """
    return ShardRecord.of_bytes(read_object(store, task.name), RECORD)


def read_object(store: BucketStore, name: str) -> bytes:
    """Return the content of a task's object; empty if the object does not exist.

    Raises:
        OSError: the bucket cannot be read now.
    """
    try:
        return store.get(name, LARGEST_RECORD)
    except FileNotFoundError:
        return b""


def is_uploaded(store: BucketStore, shard: Shard, record: ShardRecord) -> bool:
    """Return whether a shard in a bucket is the one that a record describes.

    If the sizes match, the ETag is compared first. If it differs, the object's SHA-256 is compared.

    Raises:
        OSError: the bucket cannot be read now.
    """
    recorded_upload, listed_object = record.uploaded, store.listed(shard.name)
    if (
        recorded_upload is None
        or listed_object is None
        or not listed_object.nbytes == recorded_upload.nbytes == shard.nbytes
    ):
        return False
    if listed_object.etag == recorded_upload.version:
        return True
    return store.sha256(shard.name, lambda nbytes: None) == recorded_upload.sha256
