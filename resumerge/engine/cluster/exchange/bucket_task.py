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
"""Seconds between two heartbeats. A heartbeat costs the task two requests and the driver one, and
clouds charge for requests."""

JOIN_SECONDS = 60.0
"""Seconds for which requests to the bucket may fail when a task begins."""


def opening(nonce: str) -> bytes:
    """Return the first content of a task's object, which the driver writes."""
    return _content(nonce, {})


def _content(nonce: str, content: Mapping[str, Any]) -> bytes:
    return json.dumps({"task": nonce, **content}).encode()


@dataclass
class BucketEndpoint(TaskEndpoint):
    """A task's side of an exchange in a bucket. Giving a task up deletes the task's object.

    The task replaces the object only if the object still has the content that the task wrote last.
    So a task that resumes after it was given up does not create the object again.

    Args:
        url: the mirror's address. Every machine opens it with its own credentials.
        object: the name of the task's object, which the driver has created.
        nonce: a random text that is different for each task.
        rate: the most bytes per second to upload or read back; None for no limit.
        patience: the seconds for which requests may fail while the shard is uploaded.
    """

    url: str
    object: TaskName
    nonce: str
    rate: int | None
    patience: float
    _written: bytes = field(init=False, repr=False)
    """The last content of the object whose writing was confirmed by the server."""
    _unsure: bytes = field(init=False, repr=False, default=b"")
    """A content that the object may have, because the server's answer was lost; or empty."""
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
        with suppress(StoreError):  # a bucket that fails now also fails for the driver
            self._write(beat.as_json())

    def publish(self, plan: Plan, record: ShardRecord, beat: Beat, moved: Moved) -> ShardRecord:
        limit = RateLimit(self.rate)

        def paced(nbytes: int) -> None:
            moved(nbytes)
            _pause(limit.seconds(nbytes), moved)

        def attempt() -> ShardRecord:
            self._write(beat.as_json())  # raises if the task has been given up
            uploaded = self._upload(plan, record, beat.node, paced)
            complete_record = replace(record, uploaded=uploaded)
            self._write({**beat.as_json(), RECORD: complete_record.as_json()})
            return complete_record

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
        """Upload the shard, or compare it with the shard that another task uploaded."""
        name = plan.shards[0].name
        shard_path = self._folder / name
        nbytes = shard_path.stat().st_size
        uploaded_before = self._store.listed(name)
        sha256 = self._store.create(name, shard_path, moved) if uploaded_before is None else None
        listed_object = uploaded_before or self._store.listed(name)
        if listed_object is None:
            raise StoreError(f"{name} in {self.url} was deleted")
        if listed_object.nbytes != nbytes:
            message = f"Another file has the name {name} in {self.url}: resuming renames it"
            raise Resumable(Reason.MIRROR, message)
        if sha256 is None:
            sha256 = self._compare(plan, record, node, moved)
        else:
            self._created = True
        return Uploaded(nbytes, sha256, listed_object.etag)

    def _compare(self, plan: Plan, record: ShardRecord, node: Node, moved: Moved) -> str:
        """Compare the shard with the one that another task uploaded, and return its SHA-256.

        Raises:
            Resumable: the shards differ.
        """
        name, downloaded_copy = plan.shards[0].name, self._folder / "uploaded"
        computed_sha256 = sha256_of(self._folder / name, lambda: moved(0))
        if self._store.sha256(name, moved) != computed_sha256:
            self._store.download(name, downloaded_copy, moved)
            compare_with_record(downloaded_copy, name, plan, record, node)
            raise StoreError(f"{name} in {self.url} was replaced while it was read")
        return computed_sha256

    def _remove_orphans(self, name: str) -> None:
        """Remove the shard and parts that this task uploaded, unless a run or a model needs them.

        Parts are removed only if no process holds the lease, because the holder may continue the
        upload. The shard is removed only if the bucket contains no finished model either.
        """
        with suppress(OSError):
            listed_sizes = self._store.list()
            if not fencing_tokens(listed_sizes):
                self._store.abandon_uploads([name])
                if self._created and MANIFEST_FILE not in listed_sizes:
                    self._store.put({}, [name])

    def _write(self, content: Mapping[str, Any]) -> None:
        """Replace the content of the task's object.

        Raises:
            TaskAbandoned: the object was deleted or changed by another process.
            StoreError: the bucket cannot be used now.
        """
        new_content = _content(self.nonce, content)
        for content_now in (self._unsure, new_content) if self._unsure else (new_content,):
            self._unsure = content_now
            if not self._store.put_if_unchanged(self.object.name, content_now, self._written):
                raise TaskAbandoned
            self._written, self._unsure = content_now, b""


def _is_temporary(error: Exception) -> bool:
    return isinstance(error, StoreError) and not error.denied


def _pause(seconds: float, moved: Moved) -> None:
    """Wait, and call `moved` four times a second. If `moved` raises, the wait ends."""
    deadline = time.monotonic() + seconds
    while (remaining := deadline - time.monotonic()) > 0:
        time.sleep(min(0.25, remaining))
        moved(0)
