"""The standard cache of the Hub on this disk, which huggingface_hub and transformers use, too.

``blobs/<etag>`` holds contents, ``snapshots/<commit>/<name>`` relative links to them, and
``refs/<branch>`` commits. A download is written to ``blobs/<etag>.incomplete`` and renamed when it
is complete and intact. A lock in ``.locks`` makes sure that one process downloads it at a time.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from resumerge.foreign_files import read_foreign
from resumerge.storage import Storage

COMMIT = re.compile("[0-9a-f]{40}")
_LARGEST_REF = 100
LOCK_SECONDS = 0.5
"""Seconds between two checks while this process waits for another one's lock."""


@dataclass(frozen=True)
class HubFile:
    """One file of a repo at a commit, and its paths in the cache.

    Args:
        size: bytes.
        etag: sha256 of an LFS or Xet file, git blob id of any other.
    """

    repo: str
    commit: str
    name: str
    size: int
    etag: str

    @property
    def pointer(self) -> Path:
        """The path under which readers open it."""
        return snapshot_folder(self.repo, self.commit) / self.name

    @property
    def blob(self) -> Path:
        """The file with its content, shared by all commits that have it."""
        return repo_folder(self.repo) / "blobs" / self.etag

    @property
    def partial(self) -> Path:
        """The file with the bytes that were downloaded so far."""
        return self.blob.with_name(f"{self.etag}.incomplete")

    @property
    def content(self) -> Path | None:
        """The existing file with its content, complete or not; None if there is none."""
        for path in (self.pointer, self.blob):
            if path.is_file():
                return path
        return None

    @property
    def inode(self) -> int | None:
        """The inode of `content`."""
        path = self.content
        return path.stat().st_ino if path is not None else None

    @property
    def whole(self) -> bool:
        """Whether `content` has the full size."""
        path = self.content
        return path is not None and path.stat().st_size == self.size

    def link(self) -> None:
        """Make the content readable under its name in the snapshot.

        Where links are not possible, the content is moved there, as huggingface_hub does.
        """
        from huggingface_hub import file_download

        pointer = self.pointer
        if pointer.exists() or not self.blob.is_file():
            return
        pointer.parent.mkdir(parents=True, exist_ok=True)
        if not file_download.are_symlinks_supported(repo_folder(self.repo).parent):
            shutil.move(self.blob, pointer)
            return
        fresh = pointer.with_name(f"{pointer.name}.{uuid.uuid4().hex[:8]}.tmp")
        fresh.symlink_to(os.path.relpath(self.blob, pointer.parent))
        fresh.replace(pointer)

    def put(self, complete: Path) -> None:
        """Move a complete, synced file to its name in the cache, in place of any damaged one."""
        if self.pointer.is_file() and not self.pointer.is_symlink():
            self.pointer.unlink()  # a cache without links
        complete.replace(self.blob)
        with suppress(OSError):  # some network filesystems cannot sync; the name is on disk soon
            Storage().sync_folder(self.blob.parent)
        self.link()

    @contextmanager
    def locked(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold the lock on downloads of this content.

        Args:
            check: called every `LOCK_SECONDS` while another process holds the lock; an exception
                that it raises ends the waiting.
        """
        from filelock import Timeout
        from huggingface_hub.utils import WeakFileLock

        folder = repo_folder(self.repo)
        path = folder.parent / ".locks" / folder.name / f"{self.etag}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            while True:
                check()
                try:
                    stack.enter_context(WeakFileLock(path, timeout=LOCK_SECONDS))
                    break
                except Timeout:
                    continue
            yield


def cache_folder() -> Path:
    """The folder of the cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def free_bytes() -> int:
    """Free bytes of the disk that holds the cache."""
    folder = cache_folder().absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def repo_folder(repo: str) -> Path:
    """The folder of a repo."""
    return cache_folder() / "--".join(["models", *repo.split("/")])


def snapshot_folder(repo: str, commit: str) -> Path:
    """The folder of a repo at a commit."""
    return repo_folder(repo) / "snapshots" / commit


def link_etag(path: Path) -> str | None:
    """The etag of a file in a snapshot, from the name of its link's target; None for no link."""
    # Not resolved further: the blob may itself be a link into a store that repos share.
    return Path(os.readlink(path)).name if path.is_symlink() else None  # noqa: PTH115


def remembered_commit(repo: str, branch: str) -> str | None:
    """The commit of a branch when the Hub was last asked; None if it was not."""
    try:
        commit = read_foreign(repo_folder(repo) / "refs" / branch, _LARGEST_REF).decode().strip()
    except (OSError, ValueError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def cached_revisions(repo: str) -> list[str]:
    """Branches and commits of a repo for which the cache may have files."""
    refs, snapshots = repo_folder(repo) / "refs", repo_folder(repo) / "snapshots"
    branches = [path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file()]
    return [*sorted(branches), *sorted(path.name for path in snapshots.glob("*"))]


def remember_commit(repo: str, branch: str, commit: str) -> None:
    """Record the commit of a branch."""
    if remembered_commit(repo, branch) == commit:
        return
    path = repo_folder(repo) / "refs" / branch
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with suppress(OSError):  # a read-only cache can still be read
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(commit)
        fresh.replace(path)
