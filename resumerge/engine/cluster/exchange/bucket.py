"""The driver's side of the exchange in the bucket that the run is mirrored to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from resumerge.engine.cluster.exchange.base import Beat, Exchange, TaskEndpoint
from resumerge.engine.cluster.exchange.bucket_task import BEAT_SECONDS, BucketEndpoint, opening
from resumerge.engine.mirror_session.abandon import back_up, backup_names
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.recovery.uploaded import (
    adopt_uploaded,
    is_uploaded,
    read_object,
    uploaded_record,
)
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import InputError, Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.mirror import Replicator
from resumerge.mirror.names import TaskName
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.planning.plan import Plan, Shard

T = TypeVar("T")


class BucketExchange(Exchange):
    """The driver's side of an exchange in a bucket: see `recovery/uploaded.py`.

    Args:
        plan: the plan of the run, which the records of adopted shards must fit.
        ledger: the ledger in which shards are journaled and renamed files are recorded.
        files: the shards on this machine, which do not include the shards that tasks compute.
        mirror: the session with the run's mirror, whose store must be a bucket.
        replicator: the mirror's replicator, already started.
        waiting: called a few times a second while waiting for the mirror.
    """

    beat_seconds = BEAT_SECONDS

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        files: ShardFiles,
        mirror: MirrorSession,
        replicator: Replicator,
        waiting: Callable[[], None],
    ) -> None:
        assert isinstance(mirror.store, BucketStore)
        self._plan, self._ledger, self._files = plan, ledger, files
        self._mirror, self._store, self._replicator = mirror, mirror.store, replicator
        self._waiting = waiting
        self.patience = replicator.options.stall_seconds

    def open(self, pending: Sequence[Shard]) -> None:
        # Without a snapshot, other machines could not tell which run the shards belong to.
        self._replicator.wait_for_snapshot(self._waiting)
        listed_sizes = self._ask(self._store.list)
        uploaded_shards = [shard for shard in pending if shard.name in listed_sizes]
        orphan_names = [
            shard.name for shard in uploaded_shards if listed_sizes[shard.name] == shard.nbytes
        ]
        backups = backup_names(
            {shard.name for shard in uploaded_shards} - set(orphan_names), listed_sizes
        )
        # A pending shard of the right size is damaged, or its task died before writing the record.
        # It is deleted, because no snapshot refers to it.
        self._change(lambda: self._store.put({}, orphan_names))
        for name, new_name in backups.items():
            self._change(lambda: back_up(self._mirror, {name: new_name}))  # noqa: B023, called now
            self._ledger.events.add(
                EventKind.FILE_SET_ASIDE, name=name, now=new_name, mirror=self._mirror.url
            )

    def endpoint(self, task: str, shard: Shard) -> TaskEndpoint:
        nonce, name = secrets.token_hex(8), self._name(task)
        self._change(lambda: self._store.put({name.name: opening(nonce)}))
        limits = self._replicator.options
        return BucketEndpoint(self._store.url, name, nonce, limits.rate, limits.stall_seconds)

    def beats(self, tasks: Collection[str]) -> Mapping[str, Beat]:
        listed_sizes = self._store.list() if tasks else {}
        object_names = {task: self._name(task).name for task in tasks}
        beats = {
            task: Beat.of_bytes(read_object(self._store, name))
            for task, name in object_names.items()
            if name in listed_sizes
        }
        return {task: beat for task, beat in beats.items() if beat is not None}

    def record(self, task: str, shard: Shard) -> ShardRecord | None:
        return self._ask(lambda: uploaded_record(self._store, self._name(task)))

    def has(self, shard: Shard, record: ShardRecord) -> bool:
        return self._ask(lambda: is_uploaded(self._store, shard, record))

    def journaled(self, task: str, shard: Shard) -> None:
        self._replicator.uploaded([self._name(task).name])

    def give_up(self, task: str) -> None:
        with suppress(OSError):  # the objects of all tasks are deleted at the end in any case
            self._store.put({}, [self._name(task).name])

    def adopt(self) -> list[int]:
        replicator = self._replicator
        try:
            replicator.check()
            adopted_numbers, superfluous_tasks = adopt_uploaded(
                self._plan,
                self._ledger,
                self._files,
                self._store,
                replicator.token,
                replicator.check_lease,
            )
        except (InputError, Resumable):  # the next attempt will adopt the shards
            return []
        self._replicator.uploaded(superfluous_tasks)
        return adopted_numbers

    def close(self) -> None:
        """End the exchange. The replicator or the next attempt removes the remaining objects."""

    def check(self) -> None:
        self._replicator.check()

    def _name(self, task: str) -> TaskName:
        return TaskName(self._replicator.token, task)

    def _change(self, call: Callable[[], None]) -> None:
        """Make a call that changes the bucket, after checking that this machine has the lease.

        Raises:
            Resumable: another machine has taken over, or the bucket fails or denies the change.
        """

        def change_with_lease() -> None:
            self._replicator.check_lease()
            call()

        self._ask(change_with_lease)

    def _ask(self, call: Callable[[], T]) -> T:
        """Make a call to the bucket, and retry it after temporary failures.

        Raises:
            Resumable: the bucket keeps failing, or denies the call.
        """
        try:
            return retry_store(self._store, call)
        except InputError as error:
            raise Resumable(Reason.MIRROR, str(error)) from error
