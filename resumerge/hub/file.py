"""A file of a Hub repo at a commit: its copy in the standard cache, and requests to the Hub."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from resumerge.errors import InputError, Reason, Resumable, ResumergeError, refuse
from resumerge.hub.cache import cache_folder, repo_folder, snapshot_folder
from resumerge.hub.calls import explain_hub_error, is_offline, retry_after
from resumerge.hub.content_hash import ExpectedHash, is_intact
from resumerge.hub.http import get, get_at_known_server
from resumerge.hub.xet import download_by_xet, is_served_by_xet
from resumerge.remote.file import RemoteFile, Response, offline_error

T = TypeVar("T")

LIST_TIMEOUT = 30.0
"""The timeout of a listing in seconds. The Hub is slow for repos with thousands of files."""


@dataclass(frozen=True)
class HubFile(RemoteFile):
    """One file of a repo at a commit. `model` is the repo's id, `revision` the commit.

    `etag` is the SHA-256 of an LFS or Xet file, and the git blob id of any other file.
    """

    @property
    def version(self) -> str:
        return hub_version(self.model, self.revision)

    @property
    def where(self) -> str:
        return f"{self.version}/{self.name}"

    def never_intact(self, attempts: int) -> Resumable:
        return Resumable(
            Reason.SOURCE_UNAVAILABLE,
            f"{self.name} of {self.version} was downloaded {attempts} times, and its "
            f"content never had the expected hash ({self.etag}).\n"
            "Something between the Hub and this machine damages the file: try another network or "
            "HF_ENDPOINT, then resume.",
        )

    def offline_error(self, names: list[str]) -> InputError:
        return hub_offline_error(self.model, self.revision, names)

    @property
    def cache(self) -> Path:
        return cache_folder()

    @property
    def pointer(self) -> Path:
        return snapshot_folder(self.model, self.revision) / self.name

    @property
    def blob(self) -> Path:
        return repo_folder(self.model) / "blobs" / self.etag

    @property
    def lock(self) -> Path:
        return cache_folder() / ".locks" / repo_folder(self.model).name / f"{self.etag}.lock"

    @property
    def identity(self) -> str:
        return self.etag

    def is_intact(self, path: Path, check: Callable[[], None] | None = None) -> bool:
        return is_intact(path, self.etag, self.size, check)

    @property
    def is_offline(self) -> bool:
        return is_offline()

    def explain(self, error: Exception) -> ResumergeError | None:
        return explain_hub_error(error, self.model, self.revision)

    def retry_after(self, error: BaseException) -> float:
        return retry_after(error)

    def request(
        self, start: int, stop: int | None = None, validator: str | None = None
    ) -> AbstractContextManager[Response]:
        headers = {}
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        if start and validator:
            headers["If-Range"] = validator
        return get(self._url, headers) if stop is None else get_at_known_server(self._url, headers)

    def expected_content(self) -> Callable[[], ExpectedHash]:
        return partial(ExpectedHash, self.etag, self.size)

    def whole_transfer(self) -> Callable[[Callable[[int], None]], None] | None:
        repo, commit = self.model, self.revision
        if not is_served_by_xet(repo, commit, self.name, self.size, self.partial):
            return None

        def transfer(progressed: Callable[[int], None]) -> None:
            is_there = self.content is not None
            download_by_xet(repo, commit, self.name, progressed, replace=is_there)

        return transfer

    def refreshed(self) -> HubFile:
        from huggingface_hub import get_hf_file_metadata

        metadata = self.call(
            lambda: get_hf_file_metadata(self._url, timeout=LIST_TIMEOUT, library_name="resumerge")
        )
        if metadata.size is None or metadata.etag is None:
            raise refuse(
                "The server did not send the size and the etag of a file",
                where=self.where,
                fix="set HF_ENDPOINT to another server, or unset it",
            )
        return replace(self, size=metadata.size, etag=metadata.etag)

    @property
    def _url(self) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.model, self.name, revision=self.revision)


def hub_version(repo: str, commit: str) -> str:
    """Return the text ``REPO@COMMIT``, for messages."""
    return f"{repo}@{commit}"


def hub_offline_error(repo: str, commit: str, names: list[str]) -> InputError:
    """Return the error for files of a repo that are not in the cache while the network is off."""
    fix = "run once without --offline (and with HF_HUB_OFFLINE unset)"
    return offline_error(hub_version(repo, commit), snapshot_folder(repo, commit), names, fix)
