"""The standard cache of the Hub on the local disk, shared with huggingface_hub and transformers.

- ``blobs/<etag>`` is the content of a file.
- ``snapshots/<commit>/<name>`` is a relative link to a content.
- ``refs/<branch>`` is a file with the id of the branch's commit.

A download is written to ``blobs/<etag>.incomplete``, and renamed when it is complete and intact. A
lock in ``.locks`` prevents concurrent downloads of the same content.
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
    """Return the folder of the whole cache (``HF_HUB_CACHE``)."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repo_folder(repo: str) -> Path:
    """Return the folder of a model's repo in the cache."""
    return cache_folder() / "--".join(["models", *repo.split("/")])


def snapshot_folder(repo: str, commit: str) -> Path:
    """Return the folder of a repo's commit in the cache."""
    return repo_folder(repo) / "snapshots" / commit


def link_etag(path: Path) -> str | None:
    """Return the etag of a file in a snapshot, from its link's target; None if it is no link."""
    # Only the first link is read: the blob may itself be a link to a store that repos share.
    return Path(os.readlink(path)).name if path.is_symlink() else None  # noqa: PTH115


def remembered_commit(repo: str, branch: str) -> str | None:
    """Return the commit of a branch at the last request to the Hub; None if none was recorded."""
    try:
        commit = read_foreign(repo_folder(repo) / "refs" / branch, _LARGEST_REF).decode().strip()
    except (OSError, ValueError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def cached_revisions(repo: str) -> list[str]:
    """Return the branches of a repo that the cache has recorded, then the commits, both sorted."""
    refs, snapshots = repo_folder(repo) / "refs", repo_folder(repo) / "snapshots"
    branches = [path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file()]
    return [*sorted(branches), *sorted(path.name for path in snapshots.glob("*"))]


def remember_commit(repo: str, branch: str, commit: str) -> None:
    """Record the commit of a branch. A cache that cannot be written to stays unchanged."""
    if remembered_commit(repo, branch) == commit:
        return
    path = repo_folder(repo) / "refs" / branch
    new_file = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with suppress(OSError):  # a cache that cannot be written is still useful
        path.parent.mkdir(parents=True, exist_ok=True)
        new_file.write_text(commit)
        new_file.replace(path)
