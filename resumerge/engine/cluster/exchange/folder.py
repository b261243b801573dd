"""The exchange in the output's folder, which all machines share: see `recovery/published.py`."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from resumerge.engine.cluster.exchange.base import Beat, Exchange, TaskAbandoned, TaskEndpoint
from resumerge.engine.cluster.exchange.conflicts import compare_with_record
from resumerge.engine.cluster.outcomes import Node
from resumerge.engine.recovery.backup import rename_to_backup
from resumerge.engine.recovery.published import (
    adopt_published,
    published_record,
    record_path,
    remove_tasks,
    write_record,
)
from resumerge.engine.shards.shard_files import TASKS, ShardFiles
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.ledger import Ledger
from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage

VISIBLE_SECONDS = 60.0
"""Seconds that a network filesystem may take to show a file that another machine renamed."""

BEAT_SECONDS = 1.0
"""Seconds between two heartbeats of a task, and between two readings of all heartbeats.

Each heartbeat is a rename on the shared disk.
"""

_BEAT = "heartbeat.json"
_LARGEST_BEAT = 1 << 16


@dataclass(frozen=True)
class FolderEndpoint(TaskEndpoint):
    """A task's side of an exchange in a folder. Giving a task up deletes the task's folder.

    Args:
        folder: the folder of the attempt's tasks, on the disk that all machines share.
        task: the id of the task, which is also the name of its folder.
        shard: the shard's number in the run's plan.
        out: the output's folder, where the shard is published.
    """

    folder: Path
    task: str
    shard: int
    out: Path

    beat_seconds = BEAT_SECONDS

    @property
    def own_folder(self) -> Path:
        """The working folder of the task."""
        return self.folder / self.task

    def obstacle(self, node: Node) -> str:
        if self.folder.is_dir():
            return ""
        return f"the output's folder: {self.folder} does not exist here"

    @contextmanager
    def working_folder(self) -> Iterator[Path]:
        with suppress(FileExistsError):
            self.own_folder.mkdir()
        try:
            yield self.own_folder
        finally:
            shutil.rmtree(self.own_folder, ignore_errors=True)

    def beat(self, beat: Beat) -> None:
        beat_path = self.own_folder / _BEAT
        partial_path = beat_path.with_suffix(".new")
        try:
            partial_path.write_text(json.dumps(beat.as_json()), encoding="utf-8")
            os.replace(partial_path, beat_path)  # noqa: PTH105
        except FileNotFoundError:
            raise TaskAbandoned from None

    def publish(
        self, plan: Plan, record: ShardRecord, beat: Beat, moved: Callable[[int], None]
    ) -> ShardRecord:
        [shard] = plan.shards
        storage = Storage()
        files = ShardFiles(plan, self.out, storage)
        final_path = files.final(shard)
        if files.has_size_and_header(shard, final_path):
            compare_with_record(final_path, shard.name, plan, record, beat.node)
            return record
        if not self.own_folder.is_dir():
            raise TaskAbandoned
        if os.path.lexists(final_path):
            rename_to_backup(final_path, storage)
        storage.make_folder(final_path.parent)
        write_record(self.folder, self.shard, record, storage)
        storage.rename(self.own_folder / shard.name, final_path)
        return record


def read_beat(folder: Path) -> Beat | None:
    """Return the last heartbeat in a task's folder; None if it is missing or invalid."""
    with suppress(OSError, UnfitFile):
        return Beat.of_bytes(read_foreign(folder / _BEAT, _LARGEST_BEAT))
    return None


class FolderExchange(Exchange):
    """The driver's side of an exchange in a folder.

    Args:
        plan: the plan of the run, which the records of adopted shards must fit.
        ledger: the ledger in which `adopt` journals shards.
        files: the files of the shards in the output's folder, below which the tasks work.
        waiting: called a few times a second while waiting for a file.
    """

    beat_seconds = BEAT_SECONDS

    def __init__(
        self, plan: Plan, ledger: Ledger, files: ShardFiles, waiting: Callable[[], None]
    ) -> None:
        self._plan, self._ledger, self._files, self._waiting = plan, ledger, files, waiting
        self._folder = files.folder / TASKS / secrets.token_hex(8)

    def open(self, pending: Sequence[Shard]) -> None:
        Storage().make_folder(self._folder)

    def endpoint(self, task: str, shard: Shard) -> TaskEndpoint:
        return FolderEndpoint(self._folder, task, shard.number, self._files.folder)

    def beats(self, tasks: Collection[str]) -> Mapping[str, Beat]:
        beats = {task: read_beat(self._folder / task) for task in tasks}
        return {task: beat for task, beat in beats.items() if beat is not None}

    def record(self, task: str, shard: Shard) -> ShardRecord | None:
        if not self._files.has_size_and_header(shard, self._files.final(shard)):
            return None
        return published_record(record_path(self._folder, shard.number))

    def has(self, shard: Shard, record: ShardRecord) -> bool:
        final_path = self._files.final(shard)
        deadline = time.monotonic() + VISIBLE_SECONDS
        while not self._files.has_size_and_header(shard, final_path):
            if final_path.exists() or time.monotonic() > deadline:
                return False
            nearest_folder = next((f for f in final_path.parents if f.exists()), final_path.parent)
            with suppress(OSError):
                next(nearest_folder.iterdir(), None)  # makes NFS read the folder again
            self._waiting()
            time.sleep(0.2)
        return True

    def journaled(self, task: str, shard: Shard) -> None:
        record_path(self._folder, shard.number).unlink(missing_ok=True)

    def give_up(self, task: str) -> None:
        shutil.rmtree(self._folder / task, ignore_errors=True)

    def adopt(self) -> list[int]:
        return adopt_published(self._plan, self._ledger, self._files)

    def close(self) -> None:
        remove_tasks(self._files.folder)
