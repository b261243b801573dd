"""Shards that tasks of a cluster published in the output, and that are not yet in the ledger.

A task computes a shard in its own folder below the output, writes a record of the hashes, and
renames the shard to its final name. If the driver dies before it journals the shard, the process
that continues the run finds the shard and the record. It compares the record's hashes with the
shard's bytes, and journals them.

    OUT/.resumerge-tasks/ATTEMPT/          one attempt; once it is over, its tasks find no folder
    OUT/.resumerge-tasks/ATTEMPT/TASK/     one task: its heartbeat, and its unpublished shard
    OUT/.resumerge-tasks/ATTEMPT/N.json    the record of shard N
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from resumerge.engine.shards.checksums import first_mismatch
from resumerge.engine.shards.shard_files import TASKS, ShardFiles
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.ledger import Ledger
from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage

_ATTEMPT = re.compile("[0-9a-f]{16}")
_LARGEST_RECORD = 1 << 30
"""The largest accepted record in bytes. The record of a 5 GB shard has about 2 MB."""


def write_record(folder: Path, shard: int, record: ShardRecord, storage: Storage) -> None:
    """Write the record of a shard, durably.

    Args:
        folder: the folder of the attempt's tasks.
        shard: the number of the shard in the plan of the run, not in that of its task.
        record: the record of the complete shard, with the hashes of all blocks.
        storage: the operations on files.
    """
    storage.write_file(record_path(folder, shard), json.dumps(record.as_json()).encode())


def record_path(folder: Path, shard: int) -> Path:
    """Return the path of a shard's record."""
    return folder / f"{shard}.json"


def published_record(path: Path) -> ShardRecord | None:
    """Return the record at a path; None if it is missing or incomplete."""
    with suppress(OSError, UnfitFile):
        return ShardRecord.of_bytes(read_foreign(path, _LARGEST_RECORD))
    return None


def adopt_published(
    plan: Plan,
    ledger: Ledger,
    files: ShardFiles,
    report_read: Callable[[int, int], None] = lambda done, total: None,
) -> list[int]:
    """Journal published shards that are not in the ledger, then delete the files of all tasks.

    Args:
        plan: the plan of the run, which records must fit.
        ledger: the ledger in which the shards are journaled and sealed.
        files: the files of the plan's shards; contradicting final files and superseded partial
            files are deleted.
        report_read: called after the comparison of each unit, with the bytes of its shard that were
            read so far, and the size of the shard.

    Returns:
        the numbers of the journaled shards.
    """
    attempts = _attempts(files.folder)
    if not attempts:
        return []
    fingerprint = ledger.run()["fingerprint"]
    open_shards = {row["number"] for row in ledger.shards.all() if row["state"] != "sealed"}
    progress = ledger.units.progress()
    adopted_numbers = []
    for shard in plan.shards:
        task_folders = attempts if shard.number in open_shards else ()
        records = (published_record(record_path(attempt, shard.number)) for attempt in task_folders)
        for record in filter(None, records):
            if not record.fits(plan, shard, fingerprint):
                continue
            if record.contradicts(progress):  # committed blocks take precedence
                files.remove_final(shard)
            elif _is_whole(plan, files, shard, record, report_read):
                ledger.shards.adopt_computed(shard.number, record.units)
                files.remove(shard)
                adopted_numbers.append(shard.number)
                break
    remove_tasks(files.folder)
    return adopted_numbers


def remove_tasks(out: Path) -> None:
    """Delete the unfinished shards, heartbeats and records that tasks left in an output.

    Other files in the tasks' folder are kept.
    """
    for attempt in _attempts(out):
        shutil.rmtree(attempt, ignore_errors=True)
    tasks_folder = out / TASKS
    if not tasks_folder.is_symlink():
        with suppress(OSError):  # the folder does not exist, or is not empty
            tasks_folder.rmdir()


def files_of_tasks(out: Path) -> set[str]:
    """Return the names, relative to `out`, of the files that tasks left in an output."""
    paths = (path for attempt in _attempts(out) for path in attempt.rglob("*"))
    return {str(path.relative_to(out)) for path in paths if not path.is_dir()}


def _attempts(out: Path) -> list[Path]:
    """Return the folders of the attempts in an output, sorted."""
    tasks_folder = out / TASKS
    if tasks_folder.is_symlink() or not tasks_folder.is_dir():
        return []
    return sorted(
        path
        for path in tasks_folder.iterdir()
        if _ATTEMPT.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    )


def _is_whole(
    plan: Plan,
    files: ShardFiles,
    shard: Shard,
    record: ShardRecord,
    report_read: Callable[[int, int], None],
) -> bool:
    """Return whether the shard has its final name, and its bytes match the record."""
    final_path = files.final(shard)
    if final_path.is_symlink() or not files.has_size_and_header(shard, final_path):
        return False
    units: Sequence[Any] = plan.units[shard.first : shard.last]
    fd = os.open(final_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        bytes_read = 0
        for unit, commit in zip(units, record.units):
            if first_mismatch(fd, unit, commit.hashes) is not None:
                return False
            bytes_read += unit.nbytes
            report_read(bytes_read, shard.nbytes)
    finally:
        os.close(fd)
    return True
