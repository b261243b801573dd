"""A task's side of the exchange in a bucket."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from resumerge.digests import sha256_of
from resumerge.engine.cluster.exchange.base import Beat, TaskAbandoned, TaskEndpoint
from resumerge.engine.cluster.exchange.conflicts import compare_with_record
from resumerge.engine.cluster.outcomes import Node
from resumerge.engine.recovery.uploaded import RECORD
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.engine.shards.shard_record import ShardRecord, Uploaded
from resumerge.errors import InputError, Reason, Resumable, StoreError
from resumerge.mirror.names import MANIFEST_FILE, TaskName, fencing_tokens
from resumerge.mirror.stores.base import Moved
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.mirror.stores.registry import open_store
from resumerge.mirror.transfer import RateLimit
from resumerge.planning.plan import Plan
from resumerge.retry import Backoff, retry

BEAT_SECONDS = 5.0
"""Each heartbeat is two requests, which cost money; the driver reads it by one more."""

JOIN_SECONDS = 60.0
"""The time that a bucket may fail when a task begins."""


def opening(nonce: str) -> bytes:
    """Return the content of a task's object, as the driver writes it."""
    return _content(nonce, {})


def _content(nonce: str, content: Mapping[str, Any]) -> bytes:
    return json.dumps({"task": nonce, **content}).encode()


@dataclass
class BucketEndpoint(TaskEndpoint):
    """A task's side of an exchange in a bucket. The task's object is deleted when it is given up.

    The object is only ever replaced, under the condition that it is what this task wrote last. So a
    task that wakes up late leaves nothing behind.

    Args:
        url: the mirror's address. Every machine opens it with its own credentials.
        object: the name of the task's object.
        nonce: a text that differs from that of every other task.
        rate: bytes a second that are uploaded; None for no limit.
        patience: seconds that the bucket may fail while the shard is uploaded.
    """

    url: str
    object: TaskName
    nonce: str
    rate: int | None
    patience: float
    _known: bytes = field(init=False, repr=False)
    _unsure: bytes = field(init=False, repr=False, default=b"")
    """What may have been written: the answer was lost."""
    _folder: Path = field(init=False, repr=False)
    _created: bool = field(init=False, repr=False, default=False)
    """This task has put the shard there."""

    beat_seconds = BEAT_SECONDS

    def __post_init__(self) -> None:
        self._known = opening(self.nonce)

    @cached_property
    def _store(self) -> BucketStore:
        store = open_store(self.url)
        assert isinstance(store, BucketStore)
        return store

    def obstacle(self, node: Node) -> str:
        backoff = Backoff(first=0.5, longest=5.0, seconds=JOIN_SECONDS)
        try:
            retry(lambda: self._write(Beat(node).as_json()), backoff, is_temporary=_is_temporary)
        except TaskAbandoned:  # the task itself finds that out at once
            return ""
        except (InputError, StoreError) as error:
            return f"{self.url} cannot be used from here: {error}"
        return ""

    @contextmanager
    def working_folder(self) -> Iterator[Path]:
        with TemporaryFolder() as self._folder:
            yield self._folder

    def beat(self, beat: Beat) -> None:
        with suppress(StoreError):  # a bucket that fails for now fails for the driver, too
            self._write(beat.as_json())

    def publish(self, plan: Plan, record: ShardRecord, beat: Beat, moved: Moved) -> ShardRecord:
        limit = RateLimit(self.rate)

        def paced(nbytes: int) -> None:
            moved(nbytes)
            _pause(limit.seconds(nbytes), moved)

        def attempt() -> ShardRecord:
            self._write(beat.as_json())  # it has not been given up
            uploaded = self._upload(plan, record, beat.node, paced)
            whole = replace(record, uploaded=uploaded)
            self._write({**beat.as_json(), RECORD: whole.as_json()})
            return whole

        backoff = Backoff(first=1.0, longest=30.0, seconds=self.patience)
        try:
            return retry(
                attempt,
                backoff,
                is_temporary=_is_temporary,
                sleep=lambda seconds: _pause(seconds, moved),
            )
        except StoreError as error:
            raise Resumable(Reason.MIRROR, f"{self.url} cannot be used: {error}") from error
        except TaskAbandoned:
            self._remove_orphans(plan.shards[0].name)
            raise

    def _upload(self, plan: Plan, record: ShardRecord, node: Node, moved: Moved) -> Uploaded:
        """Upload the shard, or compare it with the one that is there, and return what is there."""
        name = plan.shards[0].name
        path = self._folder / name
        nbytes = path.stat().st_size
        there = self._store.listed(name)
        sha256 = self._store.create(name, path, moved) if there is None else None
        found = there or self._store.listed(name)
        if found is None:
            raise StoreError(f"{name} in {self.url} was deleted")
        if found.nbytes != nbytes:
            message = f"Another file has the name {name} in {self.url}: resuming renames it"
            raise Resumable(Reason.MIRROR, message)
        if sha256 is None:
            sha256 = self._compare(plan, record, node, moved)
        else:
            self._created = True
        return Uploaded(nbytes, sha256, found.etag)

    def _compare(self, plan: Plan, record: ShardRecord, node: Node, moved: Moved) -> str:
        """Compare the shard with one that another task has uploaded, and return its SHA-256.

        Raises:
            Resumable: they differ.
        """
        name, copy = plan.shards[0].name, self._folder / "uploaded"
        ours = sha256_of(self._folder / name, lambda: moved(0))
        if self._store.sha256(name, moved) != ours:
            self._store.download(name, copy, moved)
            compare_with_record(copy, name, plan, record, node)
            raise StoreError(f"{name} in {self.url} was replaced while it was read")
        return ours

    def _remove_orphans(self, name: str) -> None:
        """Remove what this task has uploaded if it is nobody's.

        Parts are removed if there is no lease: whoever holds one may go on with them. The shard is
        removed if there is no finished model either.
        """
        with suppress(OSError):
            there = self._store.list()
            if not fencing_tokens(there):
                self._store.abandon_uploads([name])
                if self._created and MANIFEST_FILE not in there:
                    self._store.put({}, [name])

    def _write(self, content: Mapping[str, Any]) -> None:
        """Replace the task's object.

        Raises:
            TaskAbandoned: the object is gone.
            StoreError: the bucket cannot be used now.
        """
        data = _content(self.nonce, content)
        for each in (self._unsure, data) if self._unsure else (data,):
            self._unsure = each
            if not self._store.put_if_unchanged(self.object.name, each, self._known):
                raise TaskAbandoned
            self._known, self._unsure = each, b""


def _is_temporary(error: Exception) -> bool:
    return isinstance(error, StoreError) and not error.denied


def _pause(seconds: float, moved: Moved) -> None:
    """Wait, with a look around four times a second."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(0.25, left))
        moved(0)
