"""The files of a Hub repo at one commit, as listed by the Hub or found in the cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from resumerge.errors import refuse
from resumerge.hub.cache import (
    COMMIT,
    HubFile,
    link_etag,
    remember_commit,
    remembered_commit,
    repo_folder,
    snapshot_folder,
)
from resumerge.hub.client import hub_call
from resumerge.hub.content_hash import guess_etag
from resumerge.hub.metadata_cache import MetadataCache

LIST_TIMEOUT = 30.0
"""Timeout of a listing in seconds: the Hub is slow for repos with thousands of files."""

_ETAG = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")


@dataclass(frozen=True)
class RepoSnapshot:
    """A repo at one commit.

    Args:
        folder: the snapshot's folder in the standard cache, which may not exist yet.
        files: by name; all files of the repo if `online`, else those that the cache knows.
        online: whether the listing is the Hub's.
    """

    repo: str
    commit: str
    folder: Path
    files: Mapping[str, HubFile]
    online: bool


def hub_snapshot(repo: str, revision: str | None, metadata: MetadataCache) -> RepoSnapshot:
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
            repo, revision=revision or "main", files_metadata=True, timeout=LIST_TIMEOUT
        ),
        repo=repo,
        revision=revision,
    )
    commit = info.sha or ""
    if not COMMIT.fullmatch(commit):
        raise refuse(
            "The Hub did not say which commit this is",
            where=repo,
            found=commit[:60],
            fix="try again later; if HF_ENDPOINT is set, unset it",
        )
    if revision != commit:
        remember_commit(repo, revision or "main", commit)
    files = {
        sibling.rfilename: HubFile(
            repo,
            commit,
            sibling.rfilename,
            sibling.size if sibling.size is not None else -1,
            (sibling.lfs.sha256 if sibling.lfs else sibling.blob_id) or "",
        )
        for sibling in info.siblings or []
    }
    metadata.store_listing(repo, commit, {n: (f.size, f.etag) for n, f in files.items()})
    return RepoSnapshot(repo, commit, snapshot_folder(repo, commit), files, online=True)


def with_etags(snapshot: RepoSnapshot, names: Iterable[str]) -> RepoSnapshot:
    """The snapshot with size and etag of the named files, requested one by one if not listed.

    The Hub lists them; some mirrors of it do not.
    """
    files = dict(snapshot.files)
    for name in names:
        file = files[name]
        if file.size < 0 or not file.etag:
            file = files[name] = _requested(file)
        if not _ETAG.fullmatch(file.etag):
            raise refuse(
                "The Hub sent an etag that is not a hash",
                where=f"{file.repo}@{file.commit}/{name}",
                found=repr(file.etag[:60]),
                fix="try again later; if HF_ENDPOINT is set, unset it",
            )
    return replace(snapshot, files=files)


def _requested(file: HubFile) -> HubFile:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(file.repo, file.name, revision=file.commit)
    found = hub_call(
        lambda: get_hf_file_metadata(url, timeout=LIST_TIMEOUT, library_name="resumerge"),
        repo=file.repo,
        revision=file.commit,
    )
    if found.size is None or found.etag is None:
        raise refuse(
            "The server did not send the size and the etag of a file",
            where=f"{file.repo}@{file.commit}/{file.name}",
            fix="set HF_ENDPOINT to another server, or unset it",
        )
    return replace(file, size=found.size, etag=found.etag)


def cached_snapshot(repo: str, revision: str | None, metadata: MetadataCache) -> RepoSnapshot:
    """The files of a revision in the cache and the metadata cache, without the network.

    Raises:
        InputError: the cache does not have the repo, the branch or the commit.
    """
    branch = revision or "main"
    commit = branch if COMMIT.fullmatch(branch) else remembered_commit(repo, branch)
    if commit is None or not snapshot_folder(repo, commit).is_dir():
        raise refuse(
            "Offline mode is on, and the cache does not have this model",
            where=f"{repo}@{branch}",
            expected=f"a snapshot below {repo_folder(repo)}",
            found="only other revisions" if repo_folder(repo).is_dir() else "no file of this repo",
            fix="run once without --offline (and with HF_HUB_OFFLINE unset)",
        )
    folder = snapshot_folder(repo, commit)
    files = {
        name: HubFile(repo, commit, name, size, etag)
        for name, (size, etag) in metadata.listing(repo, commit).items()
        if size >= 0 and etag
    }
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in files:
            etag = link_etag(path) or guess_etag(path)
            files[name] = HubFile(repo, commit, name, path.stat().st_size, etag)
    return RepoSnapshot(repo, commit, folder, files, online=False)


def cached_files(repo: str, revision: str | None) -> list[HubFile]:
    """All cached files of a repo, also links without a target. Each content is listed once.

    Args:
        revision: branch or commit; None for all commits.
    """
    snapshots = repo_folder(repo) / "snapshots"
    commits = sorted(path.name for path in snapshots.glob("*") if path.is_dir())
    if revision is not None:
        commits = [c for c in commits if c in (revision, remembered_commit(repo, revision))]
    found: dict[str, HubFile] = {}
    for commit in commits:
        for path in sorted((snapshots / commit).rglob("*")):
            if path.is_symlink() or path.is_file():
                name = path.relative_to(snapshots / commit).as_posix()
                size = path.stat().st_size if path.exists() else 0
                etag = link_etag(path) or guess_etag(path)
                found.setdefault(etag, HubFile(repo, commit, name, size, etag))
    return list(found.values())
