"""The far side of a mirror: files by name, in a folder or in a repo of the Hub."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

METADATA = ".resumerge"
"""The folder, inside a mirror, of everything that is not the model."""

Moved = Callable[[int], None]
"""Told how many bytes were moved since the last call; may wait (bandwidth), or raise to stop."""


class StoreError(OSError):
    """What failed over there, told for a person; never with a secret in it.

    Args:
        message: what failed.
        fix: what to do, where something can be done.
        retry_after: seconds that the place asks to wait; 0 where it does not say.
        denied: waiting alone will not help: no permission, no such place. Its errno is EACCES.
    """

    def __init__(
        self, message: str, *, fix: str = "", retry_after: float = 0.0, denied: bool = False
    ) -> None:
        super().__init__(*([errno.EACCES] if denied else []), message)
        self.message = message
        self.fix = fix
        self.retry_after = retry_after
        self.denied = denied

    def __str__(self) -> str:
        return f"{self.message}: {self.fix}" if self.fix else self.message


class Store(ABC):
    """Files by name: relative, with ``/`` between folders.

    What fails for now (network, a mount that is gone, a full disk) is an `OSError`: whoever calls
    tries again; where the place says more, a `StoreError`. A file appears under its name whole, or
    else in a way that its reader can tell: large ones are compared by their SHA-256, small ones
    carry a checksum of their own.

    Attributes:
        url: as a user writes it: an absolute path, or ``hf://org/name``.
        beat_seconds: time between two heartbeats of a lease here.
        settle_seconds: after a `claim` that could not be exclusive, others that claimed as well
            are seen after this time; 0 where a claim is exclusive.
        atomic: a `write` is done whole or not at all, and with it the uploads before it; so what is
            replaced may be removed by the `write` that replaces it.
    """

    url: str
    beat_seconds: float
    settle_seconds: float = 0.0
    atomic: bool = False

    @abstractmethod
    def files(self) -> dict[str, int]:
        """Bytes of every file that is there, by name."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A small file.

        Raises:
            FileNotFoundError: it is not there.
        """

    @abstractmethod
    def write(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        """Write small files, over those that are there; compare them; only then remove others."""

    @abstractmethod
    def claim(self, name: str, data: bytes) -> bool:
        """Write a small file that must not be there yet.

        Returns:
            False where it is there already, or somebody else was quicker. Where the place cannot
            tell, True: read it again a little later. Who was killed meanwhile may leave it empty
            or short.
        """

    def now(self) -> datetime | None:
        """The time by the place's own clock; None where it has none to be asked."""
        return None

    @abstractmethod
    def upload(self, name: str, path: Path, moved: Moved) -> str:
        """Bring a large file there, going on where an earlier call was cut off if that can be.

        Where the place is `atomic`, its bytes are there, and it gets its name with the next
        `write`, in one step; or before that, when somebody asks for it.

        Returns:
            Its SHA-256 in hex digits, of the local bytes, compared with what is there now.

        Raises:
            OSError: also where what arrived is not what was sent.
        """

    def rename(self, name: str, other: str) -> bool:
        """Give a file a name that is free; False where the place cannot."""
        return False

    @abstractmethod
    def sha256(self, name: str, moved: Moved) -> str | None:
        """The SHA-256 of what is there, in hex digits; None where nothing is."""

    @abstractmethod
    def download(self, name: str, path: Path, moved: Moved) -> None:
        """Bring a large file here, going on where an earlier call was cut off if that can be."""
