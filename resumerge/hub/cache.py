"""The standard cache of the Hub on this disk, as huggingface_hub, transformers and others use it.

``blobs/<etag>`` holds contents, ``snapshots/<commit>/<name>`` relative links to them, and
``refs/<branch>`` commits. A download grows in ``blobs/<etag>.incomplete`` and is renamed when it is
whole and right; ``.locks`` keeps two processes from doing it at once.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

COMMIT = re.compile("[0-9a-f]{40}")
LOCK_SECONDS = 0.5
"""Time between two looks at whether to go on waiting for another process."""


@dataclass(frozen=True)
class HubFile:
    """One file of a repo at a commit, and its places in the cache.

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
        """Where readers look for it."""
        return snapshot_folder(self.repo, self.commit) / self.name

    @property
    def blob(self) -> Path:
        """Its content, shared by all commits that have it."""
        return repo_folder(self.repo) / "blobs" / self.etag

    @property
    def partial(self) -> Path:
        """As much of it as has arrived."""
        return self.blob.with_name(f"{self.etag}.incomplete")

    @property
    def content(self) -> Path | None:
        """The file that holds its bytes now, whole or not; None where nothing does."""
        for path in (self.pointer, self.blob):
            if path.is_file():
                return path
        return None

    @property
    def inode(self) -> int | None:
        """Of the file that holds its bytes now."""
        path = self.content
        return path.stat().st_ino if path is not None else None

    @property
    def whole(self) -> bool:
        """Whether the cache has it at its full size."""
        path = self.content
        return path is not None and path.stat().st_size == self.size

    def link(self) -> None:
        """Make the content readable under its name in the snapshot.

        Where links are not possible, the content moves there, as with huggingface_hub.
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

    def put(self, whole: Path) -> None:
        """Give a whole, synced file its name in the cache, in place of any damaged one."""
        if self.pointer.is_file() and not self.pointer.is_symlink():
            self.pointer.unlink()  # a cache without links
        whole.replace(self.blob)
        _sync_folder(self.blob.parent)
        self.link()

    @contextmanager
    def locked(self, check: Callable[[], None]) -> Iterator[None]:
        """Keep other processes from downloading the same content meanwhile.

        Args:
            check: called now and then while another has it; what it raises ends the waiting.
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
    """Where all repos are."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def free_bytes() -> int:
    """Free space of the disk that the cache is on, or will be."""
    folder = cache_folder().absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def repo_folder(repo: str) -> Path:
    """Where a repo is."""
    return cache_folder() / "--".join(["models", *repo.split("/")])


def snapshot_folder(repo: str, commit: str) -> Path:
    """Where a repo at a commit is."""
    return repo_folder(repo) / "snapshots" / commit


def link_etag(path: Path) -> str | None:
    """The etag of a file in a snapshot, from the name that it links to."""
    # One step only: the blob may itself be a link, into a store that repos share.
    return Path(os.readlink(path)).name if path.is_symlink() else None  # noqa: PTH115


def remembered_commit(repo: str, branch: str) -> str | None:
    """The commit that a branch was at when it was last asked for."""
    try:
        commit = (repo_folder(repo) / "refs" / branch).read_text().strip()
    except (OSError, ValueError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def cached_revisions(repo: str) -> list[str]:
    """Branches and commits of a repo that files may be cached of."""
    refs, snapshots = repo_folder(repo) / "refs", repo_folder(repo) / "snapshots"
    branches = [path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file()]
    return [*sorted(branches), *sorted(path.name for path in snapshots.glob("*"))]


def remember_commit(repo: str, branch: str, commit: str) -> None:
    """Note the commit that a branch is at."""
    if remembered_commit(repo, branch) == commit:
        return
    path = repo_folder(repo) / "refs" / branch
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(commit)
        fresh.replace(path)
    except OSError:
        pass  # a cache that is read-only still serves


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network filesystems cannot; the name is found again, or the file fetched again
    finally:
        os.close(fd)
