"""A store in the main branch of a model's repo on the Hub."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from resumerge.errors import refuse
from resumerge.hub.cache import COMMIT, HubFile
from resumerge.hub.callbacks import DownloadCallbacks
from resumerge.hub.client import is_offline
from resumerge.hub.content_hash import hash_file, is_intact
from resumerge.hub.download import download_by_ranges
from resumerge.hub.http import get
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.hub.snapshot import LIST_TIMEOUT
from resumerge.mirror.backup_names import CARD
from resumerge.mirror.stores.base import METADATA, Moved, Store, StoreError
from resumerge.mirror.stores.hub_client import Conflict, Gone, NoRepo, calling
from resumerge.mirror.stores.hub_names import SCHEME, checked, repo_of
from resumerge.mirror.stores.upload_reader import PIECE, UploadReader

BRANCH = "main"

LARGEST_PLACEHOLDER = 1000
"""Bytes of the largest model card that can be the Hub's own."""

_PLACEHOLDER = re.compile(rb"\s*(---\s*\n[^\n]*(\n[^\n]+)*\n---\s*)?")
"""The model card that the Hub creates when a licence was chosen: a header without text."""

SMALL = 256 << 20
"""Bytes of the largest file that is held in memory."""

TRIES = 3
"""Commits tried in a row, where others commit at the same time."""


@dataclass(frozen=True)
class _There:
    """A file as the Hub lists it.

    Args:
        nbytes: its size.
        etag: SHA-256 of a large file, git blob id of another.
    """

    nbytes: int
    etag: str


@dataclass
class _Waiting:
    """An upload that is to be committed.

    Args:
        operation: huggingface_hub's, its bytes stored; None where they have to be sent again.
    """

    path: Path
    nbytes: int
    sha256: str
    operation: Any = None

    def is_there(self, there: _There | None) -> bool:
        """Whether what the Hub lists is this file."""
        if there is None or there.nbytes != self.nbytes:
            return False
        if len(there.etag) == 64:
            return there.etag == self.sha256
        return self.nbytes <= SMALL and is_intact(self.path, there.etag, self.nbytes)


class HubStore(Store):
    """The main branch of a model's repo, through huggingface_hub.

    The repo is made, private, on the first change.

    A commit is one step, so nothing is ever half there: small files and removals of one `write`
    are one commit, and the uploads before it come with it (`atomic`). An upload is a large file of
    git LFS, over HTTP, from where the file can be paced and stopped, rather than through Xet: the
    store takes it whole or not at all. A content that it has is not sent again, under whatever
    name, committed or not; one that was cut off is sent again from its beginning (where the Hub
    asks for parts, a part that fails for a moment is sent again alone).

    A run makes one commit for the lease at the beginning, one for each snapshot of the ledger
    (together with a sealed shard), one for each heartbeat, and one or two at the end. The Hub
    allows about 128 commits an hour; beyond that it answers 429 with ``Retry-After``.

    Operations are not repeated here, but for connections that fail within huggingface_hub (up to
    some 25 seconds where nobody answers). All may be called from several threads; commits are made
    one after the other.
    """

    scheme = SCHEME
    example = "hf://org/name"
    own_files = frozenset({".gitattributes", CARD})
    heartbeat_seconds = 120.0

    def __init__(self, url: str, *, offline: bool = False) -> None:
        """
        Raises:
            InputError: the name is malformed, or the network is off.
        """
        self.repo = repo_of(url)
        self.url = f"{SCHEME}://{self.repo}"
        if offline or is_offline():
            raise refuse(
                "The network is off, and the mirror is on the Hub",
                where=self.url,
                fix="run without --offline (and with HF_HUB_OFFLINE unset), or mirror to a folder",
            )
        self._is_there = False
        self._commits = threading.RLock()
        self._waiting: dict[str, _Waiting] = {}
        self._hashed: dict[tuple[Path, int, int, int], str] = {}

    @classmethod
    def open(cls, address: str, *, offline: bool = False) -> Self:
        return cls(address, offline=offline)

    def list(self) -> dict[str, int]:
        """Bytes of every file, by name; also of those that the next `write` commits.

        None where there is no such repo, or none that this account is let know of.
        """
        waiting = {name: upload.nbytes for name, upload in dict(self._waiting).items()}
        return {name: there.nbytes for name, there in self._listing()[1].items()} | waiting

    def now(self) -> datetime | None:
        with calling(self.repo) as call:
            self._model_info()
            return call.at.astimezone(UTC) if call.at is not None else None

    def get(self, name: str) -> bytes:
        self._publish(name)
        pieces: list[bytes] = []
        self._stream(name, SMALL, pieces.append)
        return b"".join(pieces)

    def sha256(self, name: str, moved: Moved) -> str | None:
        self._publish(name)
        there = self._listing()[1].get(name)
        if there is None or len(there.etag) == 64:
            return there.etag if there is not None else None
        digest = hashlib.sha256()

        def take(piece: bytes) -> None:
            digest.update(piece)
            moved(len(piece))

        self._stream(name, SMALL, take)
        return digest.hexdigest()

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        for name in (*files, *remove):
            checked(name)
        with self._commits:
            self._make()
            for attempt in range(1, TRIES + 1):
                try:
                    self._write(files, remove)
                    return
                except Conflict:
                    if attempt == TRIES:
                        raise

    def put_if_absent(self, name: str, data: bytes) -> bool:
        checked(name)
        with self._commits:
            self._make()
            for _ in range(TRIES):
                commit, there = self._listing()
                if name in there:
                    # It may be ours: of a commit whose answer was lost.
                    return self.get(name) == data
                try:
                    self._commit([self._small(name, data)], parent=commit)
                    return True
                except Conflict:
                    continue
        raise StoreError(f"Others commit to {self.repo} all the time")

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        checked(name)
        wanted = _Waiting(path, path.stat().st_size, self._hash(path, moved))
        self._make()
        if wanted.is_there(self._listing()[1].get(name)):
            self._waiting.pop(name, None)
            return wanted.sha256
        known = self._waiting.get(name)
        if known is None or known.sha256 != wanted.sha256 or known.operation is None:
            wanted.operation = self._send(name, wanted, moved)
            self._waiting[name] = wanted
        return wanted.sha256

    def download(self, name: str, path: Path, moved: Moved) -> None:
        """The bytes grow in ``NAME.part``, and are renamed when their hash is the listed one."""
        self._publish(name)
        commit, files = self._listing()
        there = files.get(name)
        if there is None:
            raise FileNotFoundError(f"{self.url} has no {name}")
        file = _Target(self.repo, commit, name, there.nbytes, there.etag, path)
        told = file.partial.stat().st_size if file.partial.exists() else 0

        def tell(length: int) -> None:
            nonlocal told
            for start in range(told, length, PIECE):
                moved(min(PIECE, length - start))
            told = length

        def pause(seconds: float) -> None:
            for _ in range(max(1, round(seconds * 4))):
                moved(0)
                time.sleep(0.25)

        with calling(self.repo):
            download_by_ranges(
                file, MetadataCache(), DownloadCallbacks(tell, lambda: moved(0), pause)
            )

    def is_placeholder(self, name: str, nbytes: int) -> bool:
        return (
            name == CARD
            and nbytes <= LARGEST_PLACEHOLDER
            and _PLACEHOLDER.fullmatch(self.get(name)) is not None
        )

    def _make(self) -> None:
        """Make the repo, private, where it is not there yet; before anything is changed."""
        if not self._is_there:
            with calling(self.repo):
                self._api().create_repo(self.repo, private=True, exist_ok=True)
            self._is_there = True

    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(library_name="resumerge")

    def _model_info(self) -> Any:
        return self._api().model_info(
            self.repo, revision=BRANCH, files_metadata=True, timeout=LIST_TIMEOUT
        )

    def _listing(self) -> tuple[str, dict[str, _There]]:
        """The newest commit, and its files, in one request; nothing where nothing ever was."""
        try:
            with calling(self.repo):
                info = self._model_info()
        except NoRepo:
            if self._is_there:
                raise
            return "", {}
        self._is_there = True
        if not COMMIT.fullmatch(info.sha or ""):
            raise StoreError(f"The Hub's answer names no commit of {self.repo}")
        return info.sha, {
            checked(sibling.rfilename): _There(
                sibling.size or 0, (sibling.lfs.sha256 if sibling.lfs else sibling.blob_id) or ""
            )
            for sibling in info.siblings or []
        }

    def _stream(self, name: str, most: int, take: Callable[[bytes], None]) -> None:
        from huggingface_hub import hf_hub_url

        total = 0
        try:
            with (
                calling(self.repo),
                get(hf_hub_url(self.repo, name, revision=BRANCH), {}) as response,
            ):
                for chunk in response.chunks:
                    total += len(chunk)
                    if total > most:
                        raise StoreError(f"{name} in {self.repo} is larger than {most} bytes")
                    take(chunk)
        except (Gone, NoRepo) as error:
            if isinstance(error, NoRepo) and self._is_there:
                raise
            raise FileNotFoundError(f"{self.url} has no {name}") from error

    def _publish(self, name: str) -> None:
        """Commit an upload that waits for a `write`, if this is one."""
        if checked(name) in self._waiting:
            self.put({})

    def _write(self, files: Mapping[str, bytes], remove: Sequence[str]) -> None:
        from huggingface_hub import CommitOperationDelete

        waiting = dict(self._waiting)  # at once: others upload meanwhile
        for name in waiting.keys() & files.keys():
            waiting.pop(name)
        there = self._listing()[1] if waiting or remove else {}
        operations = [self._small(name, data) for name, data in files.items()]
        for name, upload in waiting.items():
            if not upload.is_there(there.get(name)):
                if upload.operation is None:
                    upload.operation = self._send(name, upload, lambda nbytes: None)
                operations.append(upload.operation)
        operations += [
            CommitOperationDelete(name)
            for name in dict.fromkeys(remove)
            if name in there and name not in files
        ]
        try:
            if operations:
                self._commit(operations)
        except StoreError:
            for upload in waiting.values():  # the store may have dropped what nobody committed
                upload.operation = None
            raise
        there = self._listing()[1] if waiting else {}
        for name, upload in waiting.items():
            if not upload.is_there(there.get(name)):
                upload.operation = None
                raise StoreError(f"{name} is not in {self.repo} as it was sent")
            if self._waiting.get(name) is upload:
                del self._waiting[name]
        for name in files:
            self._waiting.pop(name, None)

    def _commit(self, operations: Sequence[Any], parent: str | None = None) -> None:
        with calling(self.repo):
            names = [operation.path_in_repo for operation in operations]
            shown = [name for name in names if not name.startswith(METADATA)] or ["books"]
            more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
            self._api().create_commit(
                self.repo,
                operations,
                commit_message=f"resumerge: {', '.join(shown[:3])}{more}",
                revision=BRANCH,
                parent_commit=parent,
            )

    def _small(self, name: str, data: bytes) -> Any:
        from huggingface_hub import CommitOperationAdd

        return CommitOperationAdd(name, data)

    def _hash(self, path: Path, moved: Moved) -> str:
        """The SHA-256 of a file, which is read for it once until it changes."""
        stat = path.stat()
        key = (path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if key not in self._hashed:
            digest = hashlib.sha256()
            hash_file(path, digest, lambda: moved(0))
            self._hashed[key] = digest.hexdigest()
        return self._hashed[key]

    def _send(self, name: str, upload: _Waiting, moved: Moved) -> Any:
        """Store a file's bytes; the operation that commits them."""
        from huggingface_hub import CommitOperationAdd
        from huggingface_hub.lfs import UploadInfo

        with UploadReader(upload.path, moved) as sent, upload.path.open("rb") as head:
            # Made of the file, it would be read once more, for a hash that is known.
            operation: Any = CommitOperationAdd(name, b"")
            operation.upload_info = UploadInfo(
                sha256=bytes.fromhex(upload.sha256), size=upload.nbytes, sample=head.read(512)
            )
            operation.path_or_fileobj = sent
            try:
                with calling(self.repo):
                    self._api().preupload_lfs_files(self.repo, [operation], revision=BRANCH)
                if operation.path_or_fileobj is sent:
                    # For the Hub it is a small file, which goes with the commit.
                    if upload.nbytes > SMALL:
                        raise StoreError(f"{self.repo} does not take {name}: see its .gitignore")
                    operation.path_or_fileobj = b"".join(iter(sent.read, b""))
            except Exception:
                if sent.stopped is not None:
                    raise sent.stopped from None
                raise
        return operation


@dataclass(frozen=True)
class _Target(HubFile):
    """A file of the repo, and where on this machine it is to be."""

    path: Path

    @property
    def partial(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def content(self) -> Path | None:
        return self.path if self.path.is_file() else None

    def put(self, whole: Path) -> None:
        whole.replace(self.path)
