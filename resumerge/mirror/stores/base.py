"""The contract of a store: named files on a filesystem, in a repo of the Hub, or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Self

from resumerge.errors import Problem, refuse
from resumerge.errors import StoreError as StoreError
from resumerge.foreign_files import has_odd_part
from resumerge.ledger.file_names import METADATA as METADATA

SMALL = 256 << 20
"""The largest size in bytes of a file that is held in memory."""

Moved = Callable[[int], None]
"""A function of the number of bytes moved since its last call, to the store or from it.

Bytes that are sent and bytes that are read back to be compared count alike; local bytes that are
only hashed count as 0. The function may wait, to limit the rate, or raise, to stop the transfer.
"""


class Store(ABC):
    """Named files that outlive this machine.

    A new kind of store is one subclass and its registration (`resumerge.mirror.stores.registry`).
    The class attributes below and the class methods declare how users address it; the methods hold
    the data. `tests/support/store_conformance.py` has the checks that every store must pass.

    **Names** are relative paths with ``/`` between folders, without ``.`` or ``..``. Folders exist
    only as parts of names.

    **Errors** are temporary or permanent. An `OSError` is temporary (network, a server that fails
    or limits, unmounted drive, full disk): callers retry. A `StoreError` with `denied`, and EACCES,
    EPERM or EROFS, are permanent (no access, no such bucket, a request that the server lacks):
    callers report them. `FileNotFoundError`, a subclass of `OSError`, means that the file does not
    exist. A store does not retry by itself, except for what its library retries within seconds.
    After an error it is unknown whether a write was done: its answer may have been lost. Every
    method can be called again then.

    **Atomicity.** No operation is required to be atomic. A reader must therefore verify what it
    reads: small files contain a checksum (or have one in their names), large files are compared by
    SHA-256. What `put` guarantees is an order: it removes files only after it has written and
    verified the others.

    **Conditions.** `put_if_absent` and `put_if_unchanged` write only where a file does not exist,
    or has the content that the caller knows. How far that keeps other writers out depends on the
    store: see there, `settle_seconds` and `lease_obstacle`. Contents have to differ by writer: a
    file that has the new content may count as written, because an answer may have been lost.

    **Visibility.** What a process has written, it sees at once in `list` and `get`. Other processes
    see it after `settle_seconds` at most. An upload that is not finished is not listed under its
    name, or is listed with fewer bytes.

    **Threads.** Several threads may call all methods at the same time.

    Attributes:
        url: the normalised address, as the ledger records it.
        scheme: the text before ``://`` in an address; empty for paths.
        example: an address for messages, such as ``hf://org/name``.
        own_files: the names that the store itself creates in a new place. They do not count as
            files of the user.
        heartbeat_seconds: the time between two heartbeats of a lease in this store.
        patience: the seconds for which an operation that fails is repeated by its callers.
        noun: the word for the store in messages: what it is for the user.
        settle_seconds: the time after which concurrent writers see each other's file, where
            `put_if_absent` is not exclusive; 0 where it is.
    """

    scheme: ClassVar[str]
    example: ClassVar[str]
    own_files: ClassVar[frozenset[str]] = frozenset()

    url: str
    heartbeat_seconds: float
    patience: float = 20.0
    noun: str = "mirror"
    settle_seconds: float = 0.0

    @property
    def place(self) -> str:
        """The store's word and address, for messages: ``mirror at hf://org/name``."""
        return f"{self.noun} at {self.url}"

    # The address

    @classmethod
    @abstractmethod
    def open(cls, address: str, *, offline: bool = False) -> Self:
        """Return the store at an address; it is not contacted yet.

        Args:
            address: the address as the user wrote it.
            offline: whether the network must not be used.

        Raises:
            InputError: the address is malformed, or the store needs the network.
        """

    @classmethod
    def recognises(cls, text: str) -> bool:
        """Return whether a text can only be the address of a mirror in a store of this kind.

        If so, it is not the name of a run or an output folder.
        """
        return text.startswith(f"{cls.scheme}://")

    @classmethod
    def normalise(cls, address: str) -> str:
        """Return the address as the ledger records it; a malformed one may be returned as it is."""
        return address.removesuffix("/")

    @property
    def local_folder(self) -> Path | None:
        """The folder of a store on a mounted filesystem; None for others.

        With a folder, the engine checks paths: its parent must exist, and it must not overlap the
        output, the sources or the state folder.
        """
        return None

    def check_address(self) -> list[Problem]:
        """Return the problems of the place itself, checked before anything is written."""
        return []

    # The files

    @abstractmethod
    def list(self) -> dict[str, int]:
        """Return the size in bytes of every file, by name.

        A place that does not exist yet is empty.

        Raises:
            OSError: the place cannot be read now. A place that existed and is gone is an error,
                too.
        """

    @abstractmethod
    def get(self, name: str, most: int = SMALL) -> bytes:
        """Return the content of a small file; empty if it is larger, or no file (a link, a pipe).

        Args:
            name: the file's name.
            most: the largest size in bytes. Anybody may have written the file, and no more of it is
                held in memory.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    @abstractmethod
    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        """Write small files, replacing existing ones; verify them; then remove other files.

        A file to remove need not exist. Where the store can, all of this is one step, together
        with the uploads before it.
        """

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a small file only if no file has this name.

        Where a store cannot test and write in one step (a weak store, with `settle_seconds` above
        0), two concurrent callers may both get True. Each caller must then wait for
        `settle_seconds` and read the file: the owner is the one whose data it finds. A process that
        is killed during the call can leave a file that is empty or incomplete.

        Returns:
            True if the file was written; False if it exists, or another writer was faster.
        """

    def put_if_unchanged(
        self, name: str, data: bytes, before: bytes | None, remove: Sequence[str] = ()
    ) -> bool:
        """Write a small file only if its content is still what it was; then remove other files.

        A store that can test and write in one step does so. This default does not: it keeps nobody
        out who writes between the test and the write.

        Args:
            name: the file's name.
            data: the new content.
            before: the content that is replaced; None if the file must not exist.
            remove: the names of files to remove.

        Returns:
            True if the file has the new content now, even if it had it before. False if it has
            another content or does not exist; then nothing is written.
        """
        try:
            present: bytes | None = self.get(name)
        except FileNotFoundError:
            present = None
        if present not in (before, data):
            return False
        # The same content is not written again: a replaced file may be incomplete for a moment.
        self.put({} if present == data else {name: data}, remove)
        return True

    def lease_obstacle(self) -> str:
        """Return why a lease in this store would not keep other machines out; empty if it does.

        The store may try it on small files, which it removes.
        """
        return ""

    def abandon_uploads(self, names: Iterable[str]) -> None:  # noqa: B027, most have nothing to do
        """Remove parts that interrupted uploads of files have left and `list` does not show."""

    def now(self) -> datetime | None:
        """Return the time by the store's own clock, with a time zone; None if it has no clock."""
        return None

    @abstractmethod
    def upload(self, name: str, path: Path, moved: Moved) -> str:
        """Copy a large local file to the store. Where possible, continue an earlier upload.

        The file may get its name with the next `put` only; `list`, `get` and `sha256` of this
        process see it at once.

        Returns:
            the SHA-256 of the local bytes in hex digits; the store's copy was compared with it.

        Raises:
            OSError: also if the store's copy differs; the next call replaces it.
        """

    def rename(self, name: str, other: str) -> bool:
        """Rename a file to a name that is free; return False if the store cannot rename."""
        return False

    @abstractmethod
    def sha256(self, name: str, moved: Moved) -> str | None:
        """Return the SHA-256 of a file in hex digits; None if it does not exist."""

    @abstractmethod
    def download(self, name: str, path: Path, moved: Moved) -> None:
        """Copy a large file to a local path. Where possible, continue an earlier download.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def is_placeholder(self, name: str, nbytes: int) -> bool:
        """Return whether the store itself created a file, and nobody has edited it.

        Args:
            name: the file's name.
            nbytes: the file's size in bytes.
        """
        return False


def safe_name(name: str, reserved: str = "") -> str:
    """Return the name of a file in a mirror, unchanged.

    Args:
        name: the name.
        reserved: the name of a folder of the place itself; empty if it has none.

    Raises:
        InputError: the name, as a path, leads out of a folder.
    """
    if has_odd_part(name) or reserved in name.split("/"):
        raise refuse(
            "The name of a file points outside of the mirror",
            found=repr(name[:200]),
            fix="do not use this mirror: somebody has tampered with it",
        )
    return name
