"""The files of a model that is elsewhere, at one version, as a server or the cache lists them."""

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
    """A model at one version, which the Hub calls a snapshot.

    Args:
        model: the model as messages name it, without the version.
        revision: the version.
        folder: the version's folder in the cache, which may not exist yet.
        files: the files by name.
        online: whether the server has listed them.
        is_listing: whether the model has no other files; else these are those in the cache.
    """

    model: str
    revision: str
    folder: Path
    files: Mapping[str, RemoteFile]
    online: bool
    is_listing: bool

    kind: ClassVar[str]
    """The kind of the source."""

    fix_absent: ClassVar[str]
    """The advice where the index names files that the model does not have."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The model with its version, for messages."""

    @abstractmethod
    def offline_error(self, names: list[str]) -> InputError:
        """Return the error for files that are not in the cache without the network."""

    @abstractmethod
    def described(self, names: Iterable[str]) -> Self:
        """Return the model with size and etag of the named files, requested if not listed."""

    @abstractmethod
    def pin(self, names: Iterable[str]) -> str:
        """Return the source's revision, which pins the content of the named weight files."""
