"""A store in the main branch of a model's repo on the Hub."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from resumerge.digests import ExpectedContent
from resumerge.errors import refuse
from resumerge.hub.calls import is_offline
from resumerge.hub.file import HubFile
from resumerge.mirror.stores.base import SMALL, Moved, Store, StoreError
from resumerge.mirror.stores.hub_address import SCHEME, repo_of
from resumerge.mirror.stores.hub_client import CommitConflict, hub_errors
from resumerge.mirror.stores.hub_repo import Commits, HubRepo, safe_name_in_repo
from resumerge.mirror.stores.hub_uploads import (
    FileHashes,
    PendingUpload,
    store_bytes,
)
from resumerge.mirror.stores.upload_reader import REPORT_BYTES
from resumerge.output_path import CARD
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.download import download_by_ranges
from resumerge.remote.metadata_cache import MetadataCache

LARGEST_PLACEHOLDER = 1000
"""The largest size in bytes of a model card that the Hub itself created."""

_PLACEHOLDER = re.compile(rb"\s*(---\s*\n[^\n]*(\n[^\n]+)*\n---\s*)?")
"""A model card that the Hub itself creates when a licence is chosen: a header without text."""

TRIES = 3
"""The most tries of a commit while other programs commit at the same time."""


class HubStore(Store):
    """Files in a repo of the Hub, read and written by huggingface_hub.

    The first change creates the repo, private by default. A commit is atomic: the small files and
    removals of one `put`, and the uploads before it, are one commit.

    Uploads use git LFS over HTTP, not Xet, so that they can be stopped and their rate limited. The
    Hub stores only complete files, so an interrupted upload starts again. Content that the Hub
    already has, under any name and committed or not, is not sent again.

    A run makes one commit for the lease at the beginning, one for each snapshot of the ledger
    (together with a sealed shard), one for each heartbeat, and one or two at the end. The Hub
    allows about 128 commits an hour; beyond that, it responds with 429 and ``Retry-After``.

    Commits are made one after the other. huggingface_hub retries a failing connection for up to
    25 seconds.

    Args:
        url: the address, ``hf://org/name``.
        offline: whether the network must not be used.
        commits: the branch, the commit message, and whether a new repo is private; None for the
            defaults of `Commits`.

    Raises:
        InputError: the address is malformed, or the network must not be used.
    """

    scheme = SCHEME
    example = "hf://org/name"
    own_files = frozenset({".gitattributes", CARD})
    heartbeat_seconds = 120.0

    def __init__(self, url: str, *, offline: bool = False, commits: Commits | None = None) -> None:
        self._repo = HubRepo(repo_of(url), commits or Commits())
        self.url = f"{SCHEME}://{self._repo.name}"
        if offline or is_offline():
            raise refuse(
                "Offline mode is on, and this is a repo on the Hub",
                where=self.url,
                fix="run without --offline, and with HF_HUB_OFFLINE unset",
            )
        self._commit_lock = threading.RLock()
        self._pending: dict[str, PendingUpload] = {}
        self._hashes = FileHashes()

    @classmethod
    def open(cls, address: str, *, offline: bool = False) -> Self:
        return cls(address, offline=offline)

    # The contract

    def list(self) -> dict[str, int]:
        """Return the size in bytes of every file, by name, including uncommitted uploads.

        A repo that this account may not read is listed as empty if no earlier request of this
        process succeeded. Otherwise it is an error.
        """
        pending_sizes = {name: upload.nbytes for name, upload in dict(self._pending).items()}
        return {name: file.nbytes for name, file in self._repo.listing()[1].items()} | pending_sizes

    def now(self) -> datetime | None:
        return self._repo.now()

    def get(self, name: str, most: int = SMALL) -> bytes:
        self._commit_pending(name)
        pieces: list[bytes] = []
        is_whole = self._repo.stream(name, pieces.append, most)
        return b"".join(pieces) if is_whole else b""

    def sha256(self, name: str, moved: Moved) -> str | None:
        self._commit_pending(name)
        listed_file = self._repo.listing()[1].get(name)
        if listed_file is None or listed_file.sha256 is not None:
            return listed_file.sha256 if listed_file is not None else None
        digest = hashlib.sha256()

        def take(piece: bytes) -> None:
            digest.update(piece)
            moved(len(piece))

        if not self._repo.stream(name, take, SMALL):
            raise StoreError(f"{name} in {self._repo.name} is larger than {SMALL} bytes")
        return digest.hexdigest()

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        for name in (*files, *remove):
            safe_name_in_repo(name)
        with self._commit_lock:
            self._repo.create()
            for number in range(1, TRIES + 1):
                try:
                    self._put(files, remove)
                    return
                except CommitConflict:
                    if number == TRIES:
                        raise

    def put_if_absent(self, name: str, data: bytes) -> bool:
        safe_name_in_repo(name)
        with self._commit_lock:
            self._repo.create()
            for _ in range(TRIES):
                commit, listed_files = self._repo.listing()
                if name in listed_files:
                    # The file is ours if the response to an earlier commit was lost.
                    return self.get(name) == data
                try:
                    self._repo.commit([_add(name, data)], parent=commit)
                    return True
                except CommitConflict:
                    continue
        raise self._interference()

    def put_if_unchanged(
        self, name: str, data: bytes, before: bytes | None, remove: Sequence[str] = ()
    ) -> bool:
        for changed_name in (name, *remove):
            safe_name_in_repo(changed_name)
        with self._commit_lock:
            self._repo.create()
            for _ in range(TRIES):
                commit, listed_files = self._repo.listing()
                # The content may be newer than the listing. Then the commit fails, and is retried.
                present_content = self.get(name) if name in listed_files else None
                if present_content == data:  # the response to our commit was lost
                    self.put({}, remove)
                    return True
                if present_content != before:
                    return False
                with suppress(CommitConflict):
                    self._put({name: data}, remove, parent=commit)
                    return True
        raise self._interference()

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        """Send the bytes to the Hub now. The next `put` commits them."""
        safe_name_in_repo(name)
        sha256 = self._hashes.sha256(path, lambda: moved(0))
        upload = PendingUpload(path, path.stat().st_size, sha256)
        self._repo.create()
        if upload.is_listed(self._repo.listing()[1].get(name)):
            self._pending.pop(name, None)
            return sha256
        earlier_upload = self._pending.get(name)
        if (
            earlier_upload is None
            or earlier_upload.sha256 != sha256
            or earlier_upload.operation is None
        ):
            upload.operation = store_bytes(*self._repo.place, name, upload, moved)
            self._pending[name] = upload
        return sha256

    def download(self, name: str, path: Path, moved: Moved) -> None:
        """Download a file to ``NAME.part``, compare its hash with the listed one, and rename it."""
        self._commit_pending(name)
        commit, files = self._repo.listing()
        listed_file = files.get(name)
        if listed_file is None:
            raise FileNotFoundError(f"{self.url} has no {name}")
        file = _Target(self._repo.name, commit, name, listed_file.nbytes, listed_file.etag, path)
        reported_bytes = file.partial.stat().st_size if file.partial.exists() else 0

        def report(length: int) -> None:
            nonlocal reported_bytes
            for start in range(reported_bytes, length, REPORT_BYTES):
                moved(min(REPORT_BYTES, length - start))
            reported_bytes = length

        def sleep(seconds: float) -> None:
            for _ in range(max(1, round(seconds * 4))):
                moved(0)
                time.sleep(0.25)

        with hub_errors(self._repo.name):
            callbacks = DownloadCallbacks(report, lambda: moved(0), sleep)
            download_by_ranges(file, MetadataCache(), callbacks)

    def is_placeholder(self, name: str, nbytes: int) -> bool:
        return (
            name == CARD
            and nbytes <= LARGEST_PLACEHOLDER
            and _PLACEHOLDER.fullmatch(self.get(name)) is not None
        )

    def _interference(self) -> StoreError:
        return StoreError(
            f"Other commits to {self._repo.name} keep interfering: let only one program write to it"
        )

    # Commits

    def _commit_pending(self, name: str) -> None:
        """Commit all pending uploads if this file, which will be read next, is one of them."""
        if safe_name_in_repo(name) in self._pending:
            self.put({})

    def _put(
        self, files: Mapping[str, bytes], remove: Sequence[str], parent: str | None = None
    ) -> None:
        from huggingface_hub import CommitOperationDelete

        pending_uploads = dict(self._pending)  # a copy: other threads may upload meanwhile
        for name in pending_uploads.keys() & files.keys():
            pending_uploads.pop(name)
        listed_files = self._repo.listing()[1] if pending_uploads or remove else {}
        operations = [_add(name, data) for name, data in files.items()]
        for name, upload in pending_uploads.items():
            if not upload.is_listed(listed_files.get(name)):
                if upload.operation is None:
                    upload.operation = store_bytes(
                        *self._repo.place, name, upload, lambda nbytes: None
                    )
                operations.append(upload.operation)
        operations += [
            CommitOperationDelete(name)
            for name in dict.fromkeys(remove)
            if name in listed_files and name not in files
        ]
        try:
            if operations:
                self._repo.commit(operations, parent)
        except StoreError:
            for (
                upload
            ) in pending_uploads.values():  # the Hub may have discarded the uncommitted bytes
                upload.operation = None
            raise
        listed_files = self._repo.listing()[1] if pending_uploads else {}
        for name, upload in pending_uploads.items():
            if not upload.is_listed(listed_files.get(name)):
                upload.operation = None
                raise StoreError(f"{name} in {self._repo.name} differs from what was sent")
            if self._pending.get(name) is upload:
                del self._pending[name]
        for name in files:
            self._pending.pop(name, None)


def _add(name: str, data: bytes) -> Any:
    from huggingface_hub import CommitOperationAdd

    return CommitOperationAdd(name, data)


@dataclass(frozen=True)
class _Target(HubFile):
    """A file of the repo that is downloaded to a path of the caller's choice."""

    path: Path

    @property
    def partial(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def content(self) -> Path | None:
        return self.path if self.path.is_file() else None

    def put(self, complete: Path, content: ExpectedContent) -> None:
        complete.replace(self.path)
