"""Requests to one branch of a repo of the Hub: listing, reading and committing files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from resumerge.hub.cache import COMMIT
from resumerge.hub.file import LIST_TIMEOUT
from resumerge.hub.http import get
from resumerge.mirror.stores.base import METADATA, StoreError, safe_name
from resumerge.mirror.stores.hub_address import SCHEME
from resumerge.mirror.stores.hub_client import NoFile, NoRepo, hub_errors
from resumerge.mirror.stores.hub_uploads import BRANCH, ListedFile
from resumerge.sizes import some

safe_name_in_repo = partial(safe_name, reserved=".git")
"""Like `safe_name`, for a git repo: no file may be in its ``.git`` folder."""


@dataclass(frozen=True, kw_only=True)
class Commits:
    """The settings for changes of a repo.

    Args:
        branch: the branch to read and change; it is created if it does not exist.
        private: whether a new repo is private.
        message: the message of commits; empty for a message with the names of the files.
    """

    branch: str = BRANCH
    private: bool = True
    message: str = ""


class HubRepo:
    """A repo of the Hub. It need not exist before `create`.

    Every method raises `StoreError` if the Hub cannot be reached, fails or refuses.

    Args:
        name: the repo's id, ``org/name``.
        commits: the settings for changes.
    """

    def __init__(self, name: str, commits: Commits) -> None:
        self.name, self.commits = name, commits
        self._exists = False

    def api(self) -> Any:
        """Return a new `huggingface_hub.HfApi`."""
        from huggingface_hub import HfApi

        return HfApi(library_name="resumerge")

    @property
    def place(self) -> tuple[Any, str, str]:
        """A new API, the repo's id and the branch: the first arguments of `store_bytes`."""
        return self.api(), self.name, self.commits.branch

    def create(self) -> None:
        """Create the repo and its branch if they do not exist. Callers do this before a change."""
        if not self._exists:
            with hub_errors(self.name):
                self.api().create_repo(self.name, private=self.commits.private, exist_ok=True)
                if self.commits.branch != BRANCH:
                    self.api().create_branch(self.name, branch=self.commits.branch, exist_ok=True)
            self._exists = True

    def now(self) -> datetime | None:
        """Return the time by the Hub's clock, in UTC; None if its response contains no time."""
        with hub_errors(self.name) as call:
            self.model_info()
            return call.at.astimezone(UTC) if call.at is not None else None

    def model_info(self) -> Any:
        """Return the Hub's description of the newest commit and its files, from one request."""
        return self.api().model_info(
            self.name, revision=self.commits.branch, files_metadata=True, timeout=LIST_TIMEOUT
        )

    def listing(self) -> tuple[str, dict[str, ListedFile]]:
        """Return the newest commit and its files by name, from one request.

        Both are empty if the repo does not exist or this account may not read it, and if a branch
        other than ``main`` does not exist.

        Raises:
            StoreError: also if the repo is missing after an earlier request for it succeeded.
        """
        from huggingface_hub.errors import RevisionNotFoundError

        try:
            with hub_errors(self.name):
                try:
                    description = self.model_info()
                except RevisionNotFoundError:
                    if self.commits.branch == BRANCH:
                        raise
                    return "", {}
        except NoRepo:
            if self._exists:
                raise
            return "", {}
        self._exists = True
        if not COMMIT.fullmatch(description.sha or ""):
            raise StoreError(f"The Hub did not say which commit of {self.name} is the newest")
        return description.sha, {
            safe_name_in_repo(sibling.rfilename): ListedFile(
                sibling.size or 0, (sibling.lfs.sha256 if sibling.lfs else sibling.blob_id) or ""
            )
            for sibling in description.siblings or []
        }

    def stream(self, name: str, take: Callable[[bytes], None], most: int) -> bool:
        """Read a file in pieces.

        Args:
            name: the file's name in the repo.
            take: called with the bytes of each piece, in order.
            most: the largest size in bytes. Reading ends at the first piece beyond it.

        Returns:
            True if all of the file was read; False if it is larger than `most`.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        from huggingface_hub import hf_hub_url

        read_bytes = 0
        try:
            with (
                hub_errors(self.name),
                get(hf_hub_url(self.name, name, revision=self.commits.branch), {}) as response,
            ):
                for chunk in response.chunks:
                    read_bytes += len(chunk)
                    if read_bytes > most:
                        return False
                    take(chunk)
        except (NoFile, NoRepo) as error:
            if isinstance(error, NoRepo) and self._exists:
                raise
            raise FileNotFoundError(f"{SCHEME}://{self.name} has no {name}") from error
        return True

    def commit(self, operations: Sequence[Any], parent: str | None = None) -> None:
        """Make one commit.

        Args:
            operations: the additions and removals, as operations of huggingface_hub.
            parent: the id of the commit that must still be the newest; None for no condition.

        Raises:
            CommitConflict: another commit was made meanwhile.
        """
        names = [operation.path_in_repo for operation in operations]
        shown_names = [name for name in names if not name.startswith(METADATA)] or ["metadata"]
        with hub_errors(self.name):
            self.api().create_commit(
                self.name,
                operations,
                commit_message=self.commits.message or f"resumerge: {some(shown_names, most=3)}",
                revision=self.commits.branch,
                parent_commit=parent,
            )
