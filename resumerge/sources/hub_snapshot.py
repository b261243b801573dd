"""A Hub repo at one commit: which files it has, and where the cache keeps them."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from resumerge.errors import refuse
from resumerge.sources.hub_network import hub_call

COMMIT = re.compile("[0-9a-f]{40}")
LIST_TIMEOUT = 30.0
"""Seconds to wait for a listing; the Hub takes a while for repos with thousands of files."""


@dataclass(frozen=True)
class RepoFile:
    """A file of a repo.

    Args:
        size: bytes.
        etag: sha256 of an LFS file, git blob id of any other: the name of its blob in the cache.
            None if only the cache was asked, and it is kept without links.
    """

    size: int
    etag: str | None


@dataclass(frozen=True)
class Snapshot:
    """A repo at one commit.

    Args:
        folder: the snapshot's folder in the standard cache, whether or not it exists yet.
        files: by name; all of the repo's if `online`, else those that the cache holds.
        online: whether the Hub was asked.
    """

    repo: str
    commit: str
    folder: Path
    files: Mapping[str, RepoFile]
    online: bool

    def whole(self, name: str) -> bool:
        """Whether a file of the repo is in the snapshot's folder at its full size."""
        path = self.folder / name
        return path.is_file() and path.stat().st_size == self.files[name].size

    def blob(self, name: str) -> Path:
        """Where the cache keeps the file's content, shared by all commits that have it."""
        return self.folder.parent.parent / "blobs" / (self.files[name].etag or "unknown")


def hub_snapshot(repo: str, revision: str | None) -> Snapshot:
    """Resolve a revision to its commit and list the files: one request to the Hub.

    Args:
        repo: ``org/name``.
        revision: branch, tag or commit; None for the default branch.

    Raises:
        InputError: no such repo or revision, or no access.
        Resumable: the network failed.
    """
    from huggingface_hub import HfApi

    info = hub_call(
        lambda: HfApi(library_name="resumerge").model_info(
            repo, revision=revision, files_metadata=True, timeout=LIST_TIMEOUT
        ),
        repo=repo,
        revision=revision,
    )
    commit = info.sha or ""
    if not COMMIT.fullmatch(commit):
        raise refuse("The Hub's answer names no commit", where=repo, found=commit[:60])
    if revision != commit:
        _remember_branch(repo, revision or "main", commit)
    files = {
        sibling.rfilename: RepoFile(
            sibling.size or 0, sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        )
        for sibling in info.siblings or []
    }
    return Snapshot(repo, commit, snapshot_folder(repo, commit), files, online=True)


def cached_snapshot(repo: str, revision: str | None) -> Snapshot:
    """The same without the network: what the cache knows of a revision.

    Raises:
        InputError: nothing of the repo, the branch or the commit is in it.
    """
    branch = revision or "main"
    commit = branch if COMMIT.fullmatch(branch) else _remembered_branch(repo, branch)
    if commit is None or not snapshot_folder(repo, commit).is_dir():
        raise refuse(
            "The network is off, and the cache does not have this model",
            where=f"{repo}@{branch}",
            expected=f"a snapshot below {_repo_folder(repo)}",
            found="other revisions of it"
            if _repo_folder(repo).is_dir()
            else "nothing of this repo",
            fix="run once without --offline (and with HF_HUB_OFFLINE unset)",
        )
    folder = snapshot_folder(repo, commit)
    found = [path for path in folder.rglob("*") if path.is_file()]
    files = {
        path.relative_to(folder).as_posix(): RepoFile(path.stat().st_size, _link_etag(path))
        for path in found
    }
    return Snapshot(repo, commit, folder, files, online=False)


def snapshot_folder(repo: str, commit: str) -> Path:
    """Where the standard cache keeps a repo at a commit."""
    return _repo_folder(repo) / "snapshots" / commit


def _repo_folder(repo: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / "--".join(["models", *repo.split("/")])


def _link_etag(path: Path) -> str | None:
    # One step only: the blob may itself be a link, into a store that repos share.
    return Path(os.readlink(path)).name if path.is_symlink() else None  # noqa: PTH115


def _remembered_branch(repo: str, branch: str) -> str | None:
    try:
        commit = (_repo_folder(repo) / "refs" / branch).read_text().strip()
    except (OSError, ValueError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def _remember_branch(repo: str, branch: str, commit: str) -> None:
    """As hf_hub_download does for a branch; it is only ever given the commit here."""
    if _remembered_branch(repo, branch) == commit:
        return
    path = _repo_folder(repo) / "refs" / branch
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(commit)
        fresh.replace(path)
    except OSError:
        pass  # a cache that is read-only still serves
