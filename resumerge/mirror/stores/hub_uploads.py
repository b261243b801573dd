"""Uploads to a repo of the Hub, in two steps: store the bytes, then commit them under a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.digests import sha256_of
from resumerge.hub.content_hash import is_intact
from resumerge.mirror.stores.base import SMALL, Moved, StoreError
from resumerge.mirror.stores.hub_client import hub_errors
from resumerge.mirror.stores.upload_reader import UploadReader

BRANCH = "main"
"""The branch that a mirror is written to."""


@dataclass(frozen=True)
class ListedFile:
    """A file as the Hub lists it.

    Args:
        nbytes: the size in bytes.
        etag: the SHA-256 of a large file (git LFS), or the git blob id of another file, in hex
            digits; empty if the Hub lists neither.
    """

    nbytes: int
    etag: str

    @property
    def sha256(self) -> str | None:
        """The SHA-256 in hex digits; None if the Hub does not list it."""
        return self.etag if len(self.etag) == 64 else None


@dataclass
class PendingUpload:
    """An upload that the next commit includes.

    Args:
        path: the local file.
        nbytes: the size in bytes.
        sha256: the SHA-256 in hex digits.
        operation: huggingface_hub's operation for the stored bytes; None if the bytes have to be
            sent (again).
    """

    path: Path
    nbytes: int
    sha256: str
    operation: Any = None

    def is_listed(self, listed: ListedFile | None) -> bool:
        """Return whether a file in the Hub's listing (None: no file) has the upload's content."""
        if listed is None or listed.nbytes != self.nbytes:
            return False
        if listed.sha256 is not None:
            return listed.sha256 == self.sha256
        return self.nbytes <= SMALL and is_intact(self.path, listed.etag, self.nbytes)


class FileHashes:
    """A cache of the SHA-256 of local files. A file is read again only after it has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, int, int, int], str] = {}

    def sha256(self, path: Path, check: Callable[[], None]) -> str:
        """Return the SHA-256 of a file in hex digits.

        Args:
            path: the file on this disk.
            check: called between the pieces that are read; may raise to stop.
        """
        stat = path.stat()
        key = (path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if key not in self._known:
            self._known[key] = sha256_of(path, check)
        return self._known[key]


def store_bytes(
    api: Any, repo: str, branch: str, name: str, upload: PendingUpload, moved: Moved
) -> Any:
    """Send a file's bytes to the Hub, without a commit.

    Args:
        api: a `huggingface_hub.HfApi`.
        repo: the repo's id, ``org/name``.
        branch: the branch that the file will be committed to.
        name: the file's name in the repo.
        upload: the local file with its size and hash; it is not changed here.
        moved: called with the number of bytes that are sent; may raise to stop.

    Returns:
        huggingface_hub's operation that commits these bytes under the name.

    Raises:
        StoreError: the Hub cannot be reached, fails or refuses.
    """
    from huggingface_hub import CommitOperationAdd
    from huggingface_hub.lfs import UploadInfo

    with UploadReader(upload.path, moved) as stream, upload.path.open("rb") as file_start:
        # With a file as its argument, the constructor would read all of it to compute the hash,
        # which is already known.
        operation: Any = CommitOperationAdd(name, b"")
        operation.upload_info = UploadInfo(
            sha256=bytes.fromhex(upload.sha256), size=upload.nbytes, sample=file_start.read(512)
        )
        operation.path_or_fileobj = stream
        try:
            with hub_errors(repo):
                api.preupload_lfs_files(repo, [operation], revision=branch)
            if operation.path_or_fileobj is stream:
                # The Hub classifies it as a small file: its bytes have to be part of the commit.
                if upload.nbytes > SMALL:
                    raise StoreError(f"{repo} does not accept {name}: see its .gitignore")
                operation.path_or_fileobj = b"".join(iter(stream.read, b""))
        except Exception:
            if stream.stopped is not None:
                raise stream.stopped from None
            raise
    return operation
