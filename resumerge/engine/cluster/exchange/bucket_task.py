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
"""Seconds between two heartbeats. Each is two requests, and one more by the driver, which cost
money."""

JOIN_SECONDS = 60.0
"""Seconds for which the bucket may fail when a task begins."""


def opening(nonce: str) -> bytes:
    """Return the content of a task's object, as the driver writes it."""
    return _content(nonce, {})


def _content(nonce: str, content: Mapping[str, Any]) -> bytes:
    return json.dumps({"task": nonce, **content}).encode()


@dataclass
class BucketEndpoint(TaskEndpoint):
    """A task's side of an exchange in a bucket. The task's object is deleted when it is given up.

    The task only replaces the object, on the condition that it still has the content that the task
    wrote last. So a task that was given up and wakes up late creates no object again.

    Args:
        url: the mirror's address. Every machine opens it with its own credentials.
        object: the name of the task's object.
        nonce: a text that no other task has.
        rate: bytes a second that are uploaded, or read back; None for no limit.
        patience: seconds that the bucket may fail while the shard is uploaded.
    """

    url: str
    object: TaskName
    nonce: str
    rate: int | None
    patience: float
    _written: bytes = field(init=False, repr=False)
    """The object's content that this task is sure to have written last."""
    _unsure: bytes = field(init=False, repr=False, default=b"")
    """A content that may have been written: the server's answer was lost."""
    _folder: Path = field(init=False, repr=False)
    _created: bool = field(init=False, repr=False, default=False)
    """Whether this task has uploaded the shard."""

    beat_seconds = BEAT_SECONDS

    def __post_init__(self) -> None:
        self._written = opening(self.nonce)

    @cached_property
    def _store(self) -> BucketStore:
        store = open_store(self.url)
        assert isinstance(store, BucketStore)
        return store

    def obstacle(self, node: Node) -> str:
        backoff = Backoff(first=0.5, longest=5.0, seconds=JOIN_SECONDS)
        try:
            retry(lambda: self._write(Beat(node).as_json()), backoff, is_temporary=_is_temporary)
        except TaskAbandoned:  # the next heartbeat of the task raises it again
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
            self._write(beat.as_json())  # raises if the task has been given up
            uploaded = self._upload(plan, record, beat.node, paced)
            complete = replace(record, uploaded=uploaded)
            self._write({**beat.as_json(), RECORD: complete.as_json()})
            return complete

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
        """Upload the shard, or compare it with the uploaded one; return the shard in the bucket."""
        name = plan.shards[0].name
        path = self._folder / name
        nbytes = path.stat().st_size
        uploaded_before = self._store.listed(name)
        sha256 = self._store.create(name, path, moved) if uploaded_before is None else None
        listed = uploaded_before or self._store.listed(name)
        if listed is None:
            raise StoreError(f"{name} in {self.url} was deleted")
        if listed.nbytes != nbytes:
            message = f"Another file has the name {name} in {self.url}: resuming renames it"
            raise Resumable(Reason.MIRROR, message)
        if sha256 is None:
            sha256 = self._compare(plan, record, node, moved)
        else:
            self._created = True
        return Uploaded(nbytes, sha256, listed.etag)

    def _compare(self, plan: Plan, record: ShardRecord, node: Node, moved: Moved) -> str:
        """Compare the shard with one that another task has uploaded, and return its SHA-256.

        Raises:
            Resumable: they differ.
        """
        name, copy = plan.shards[0].name, self._folder / "uploaded"
        computed = sha256_of(self._folder / name, lambda: moved(0))
        if self._store.sha256(name, moved) != computed:
            self._store.download(name, copy, moved)
            compare_with_record(copy, name, plan, record, node)
            raise StoreError(f"{name} in {self.url} was replaced while it was read")
        return computed

    def _remove_orphans(self, name: str) -> None:
        """Remove what this task has uploaded, unless a run or a finished model needs it.

        Uploaded parts are removed if nobody holds the lease: a process that holds it may go on with
        the parts. The shard is removed if there is also no finished model.
        """
        with suppress(OSError):
            listed = self._store.list()
            if not fencing_tokens(listed):
                self._store.abandon_uploads([name])
                if self._created and MANIFEST_FILE not in listed:
                    self._store.put({}, [name])

    def _write(self, content: Mapping[str, Any]) -> None:
        """Replace the task's object.

        Raises:
            TaskAbandoned: the object is gone.
            StoreError: the bucket cannot be used now.
        """
        data = _content(self.nonce, content)
        for content_now in (self._unsure, data) if self._unsure else (data,):
            self._unsure = content_now
            if not self._store.put_if_unchanged(self.object.name, content_now, self._written):
                raise TaskAbandoned
            self._written, self._unsure = content_now, b""


def _is_temporary(error: Exception) -> bool:
    return isinstance(error, StoreError) and not error.denied


def _pause(seconds: float, moved: Moved) -> None:
    """Wait, and call `moved` four times a second, which may raise to end the waiting."""
    deadline = time.monotonic() + seconds
    while (remaining := deadline - time.monotonic()) > 0:
        time.sleep(min(0.25, remaining))
        moved(0)
