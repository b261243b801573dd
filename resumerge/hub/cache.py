"""The standard cache of the Hub on this disk, which huggingface_hub and transformers use, too.

``blobs/<etag>`` holds contents, ``snapshots/<commit>/<name>`` relative links to them, and
``refs/<branch>`` commits. A download is written to ``blobs/<etag>.incomplete`` and renamed when it
is complete and intact. A lock in ``.locks`` makes sure that one process downloads it at a time.
"""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path

from resumerge.foreign_files import read_foreign

COMMIT = re.compile("[0-9a-f]{40}")
_LARGEST_REF = 100


def cache_folder() -> Path:
    """Return the folder of the cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repo_folder(repo: str) -> Path:
    """Return the folder of a repo."""
    return cache_folder() / "--".join(["models", *repo.split("/")])


def snapshot_folder(repo: str, commit: str) -> Path:
    """Return the folder of a repo at a commit."""
    return repo_folder(repo) / "snapshots" / commit


def link_etag(path: Path) -> str | None:
    """Return the etag of a file in a snapshot: the name of its link's target; None for no link."""
    # Not resolved further: the blob may itself be a link into a store that repos share.
    return Path(os.readlink(path)).name if path.is_symlink() else None  # noqa: PTH115


def remembered_commit(repo: str, branch: str) -> str | None:
    """Return the commit that a branch had when the Hub was last asked; None if it never was."""
    try:
        commit = read_foreign(repo_folder(repo) / "refs" / branch, _LARGEST_REF).decode().strip()
    except (OSError, ValueError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def cached_revisions(repo: str) -> list[str]:
    """Return the branches and commits of a repo for which the cache may have files."""
    refs, snapshots = repo_folder(repo) / "refs", repo_folder(repo) / "snapshots"
    branches = [path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file()]
    return [*sorted(branches), *sorted(path.name for path in snapshots.glob("*"))]


def remember_commit(repo: str, branch: str, commit: str) -> None:
    """Record the commit of a branch."""
    if remembered_commit(repo, branch) == commit:
        return
    path = repo_folder(repo) / "refs" / branch
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with suppress(OSError):  # a cache that cannot be written is still useful
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(commit)
        fresh.replace(path)
