"""The files of a model on a server, at one version, from the server's listing or the cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from resumerge.errors import InputError
from resumerge.remote.file import RemoteFile


@dataclass(frozen=True)
class RemoteModel(ABC):
    """A model at one version. The Hub calls this a snapshot.

    Args:
        model: the model's name or address in messages, without the version.
        revision: the commit of a Hub repo, or the digest of a bucket's listing.
        folder: the version's folder in the cache, which may not exist yet.
        files: the files, by name.
        online: whether the files were listed by the server now, not by the cache.
        is_listing: whether `files` is complete; if not, it only has the files in the cache.
    """

    model: str
    revision: str
    folder: Path
    files: Mapping[str, RemoteFile]
    online: bool
    is_listing: bool

    kind: ClassVar[str]
    """The kind of the source, such as ``hub``."""

    fix_absent: ClassVar[str]
    """The advice in a message about files that the index names and the model lacks."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The model with its version, for messages."""

    @abstractmethod
    def offline_error(self, names: list[str]) -> InputError:
        """Return the error for files that are not in the cache while the network is off."""

    @abstractmethod
    def described(self, names: Iterable[str]) -> Self:
        """Return the model with the size and etag of these files, requesting missing ones."""

    @abstractmethod
    def pin(self, names: Iterable[str]) -> str:
        """Return the revision of the source, which pins the content of these weight files."""
