"""The files of a Hub repo at one commit, from the Hub's listing or the cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from resumerge.errors import InputError, refuse
from resumerge.hub.cache import (
    COMMIT,
    link_etag,
    remember_commit,
    remembered_commit,
    repo_folder,
    snapshot_folder,
)
from resumerge.hub.calls import hub_call
from resumerge.hub.content_hash import guess_etag
from resumerge.hub.file import LIST_TIMEOUT, HubFile, hub_offline_error, hub_version
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.remote.model import RemoteModel

_ETAG = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")


@dataclass(frozen=True)
class HubModel(RemoteModel):
    """A repo at one commit.

    Args:
        files: all files of the repo if `is_listing`; otherwise the files in the cache.
    """

    files: Mapping[str, HubFile]

    kind = "hub"
    fix_absent = "name another revision, or ask the repo's owner to upload them"

    @property
    def version(self) -> str:
        return hub_version(self.model, self.revision)

    def offline_error(self, names: list[str]) -> InputError:
        return hub_offline_error(self.model, self.revision, names)

    def described(self, names: Iterable[str]) -> HubModel:
        """Return the model with the sizes and etags of these files.

        Some mirrors of the Hub do not list them, so missing ones are requested.

        Raises:
            InputError: the Hub sent an etag that cannot be the name of a file.
            Resumable: the network failed.
        """
        files = dict(self.files)
        for name in names:
            file = files[name]
            if file.size < 0 or not file.etag:
                file = files[name] = file.refreshed()
            if not _ETAG.fullmatch(file.etag):
                raise refuse(
                    "The Hub sent an etag that is not a hash",
                    where=file.where,
                    found=repr(file.etag[:60]),
                    fix="try again later; if HF_ENDPOINT is set, unset it",
                )
        return replace(self, files=files)

    def pin(self, names: Iterable[str]) -> str:
        return self.revision


def hub_model(repo: str, revision: str | None, metadata: MetadataCache) -> HubModel:
    """Resolve a revision to its commit and list the files, by one request to the Hub.

    Args:
        repo: the repo's id, ``org/name``.
        revision: the branch, tag or commit; None for the default branch.
        metadata: the cache to record the listing in.

    Raises:
        InputError: the repo or revision does not exist, or access is denied.
        Resumable: the network failed.
    """
    from huggingface_hub import HfApi

    description = hub_call(
        lambda: HfApi(library_name="resumerge").model_info(
            repo, revision=revision or "main", files_metadata=True, timeout=LIST_TIMEOUT
        ),
        repo,
        revision,
    )
    commit = description.sha or ""
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
        for sibling in description.siblings or []
    }
    metadata.store_listing(repo, commit, {n: (f.size, f.etag) for n, f in files.items()})
    folder = snapshot_folder(repo, commit)
    return HubModel(repo, commit, folder, files, online=True, is_listing=True)


def cached_hub_model(repo: str, revision: str | None, metadata: MetadataCache) -> HubModel:
    """Return a model from the cache and the metadata cache, without the network.

    Args:
        repo: the repo's id, ``org/name``.
        revision: the branch or commit; None for the default branch.
        metadata: the cache that may have the listing of the commit.

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
    sizes_and_etags = metadata.listing(repo, commit)
    files = {
        name: HubFile(repo, commit, name, size, etag)
        for name, (size, etag) in sizes_and_etags.items()
        if size >= 0 and etag
    }
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in files:
            etag = link_etag(path) or guess_etag(path)
            files[name] = HubFile(repo, commit, name, path.stat().st_size, etag)
    return HubModel(repo, commit, folder, files, online=False, is_listing=bool(sizes_and_etags))


def cached_files(repo: str, revision: str | None) -> list[HubFile]:
    """Return all cached files of a repo, one for each content, including broken links.

    Args:
        repo: the repo's id, ``org/name``.
        revision: the branch or commit; None for all commits.
    """
    snapshots = repo_folder(repo) / "snapshots"
    commits = sorted(path.name for path in snapshots.glob("*") if path.is_dir())
    if revision is not None:
        commits = [c for c in commits if c in (revision, remembered_commit(repo, revision))]
    files_by_etag: dict[str, HubFile] = {}
    for commit in commits:
        for path in sorted((snapshots / commit).rglob("*")):
            if path.is_symlink() or path.is_file():
                name = path.relative_to(snapshots / commit).as_posix()
                size = path.stat().st_size if path.exists() else 0
                etag = link_etag(path) or guess_etag(path)
                files_by_etag.setdefault(etag, HubFile(repo, commit, name, size, etag))
    return list(files_by_etag.values())
