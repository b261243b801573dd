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
"""The largest size in bytes of a file whose whole content is held in memory."""

Moved = Callable[[int], None]
"""A callback during transfers, called with the number of bytes moved since its last call.

Bytes sent to the store count, and bytes read back from it for comparison. Local bytes that are only
hashed count as 0. The callback may wait, to limit the rate, or raise, to stop the transfer.
"""


class Store(ABC):
    """Named files in a place that outlives this machine.

    A new kind of store is one subclass and its registration (`resumerge.mirror.stores.registry`).
    The class attributes and class methods define its addresses; the other methods read and write
    files. `tests/support/store_conformance.py` contains the checks that every store must pass.

    **Names** are relative paths with ``/`` between folders, without ``.`` or ``..``. Folders exist
    only as parts of names.

    **Errors** are temporary or permanent. An `OSError` is temporary (network, a failing or limiting
    server, unmounted drive, full disk): callers retry. A `StoreError` with `denied`, and EACCES,
    EPERM or EROFS, are permanent (no access, no such bucket, a request that the server does not
    support): callers report them. `FileNotFoundError`, a subclass of `OSError`, means that the file
    does not exist. A store does not retry by itself, but its library may retry for some seconds.
    After an error, a write may have been done, because the response may have been lost. The caller
    can then call the method again; this holds for every method.

    **Atomicity.** No operation is required to be atomic. Readers must therefore verify each file:
    small files contain a checksum (or have one in their names), large files are compared by
    SHA-256. `put` guarantees an order: it removes files only after it has written and verified the
    others.

    **Conditions.** `put_if_absent` writes only if the file does not exist. `put_if_unchanged`
    writes only if the file has the content that the caller passes. Whether a condition excludes
    concurrent writers depends on the store: see these methods, `settle_seconds` and
    `lease_obstacle`. Two writers must never write the same content: a file with the new content may
    count as this caller's write, because an earlier response may have been lost.

    **Visibility.** `list` and `get` show a process its own writes at once. Other processes see them
    after at most `settle_seconds`. An unfinished upload is not listed under its name, or is listed
    with fewer bytes.

    **Threads.** Several threads may call all methods at the same time.

    Attributes:
        url: the normalised address, as the ledger records it.
        scheme: the text before ``://`` in an address; empty for paths.
        example: an address for messages, such as ``hf://org/name``.
        own_files: the names of files that the store itself creates in a new place. They do not
            count as files of the user.
        heartbeat_seconds: the seconds between two renewals of a lease in this store.
        patience: the seconds for which callers repeat a failing operation.
        noun: the word for the store in messages, such as mirror.
        settle_seconds: the seconds after which concurrent writers see each other's file if
            `put_if_absent` is not exclusive; 0 if it is exclusive.
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
        """The store's noun and address, for messages: ``mirror at hf://org/name``."""
        return f"{self.noun} at {self.url}"

    # The address

    @classmethod
    @abstractmethod
    def open(cls, address: str, *, offline: bool = False) -> Self:
        """Return the store at an address, without contacting it.

        Args:
            address: the address as the user wrote it.
            offline: whether the network must not be used.

        Raises:
            InputError: the address is malformed, or the store needs the network.
        """

    @classmethod
    def recognises(cls, text: str) -> bool:
        """Return whether a text is certainly the address of a mirror in a store of this kind.

        Such a text is not looked up as the name of a run or an output folder.
        """
        return text.startswith(f"{cls.scheme}://")

    @classmethod
    def normalise(cls, address: str) -> str:
        """Return an address as the ledger records it; a malformed one may be unchanged."""
        return address.removesuffix("/")

    @property
    def local_folder(self) -> Path | None:
        """The folder of a store on a mounted filesystem; None for other kinds of stores.

        The engine checks this folder: its parent must exist, and it must not overlap the output,
        the sources or the state folder.
        """
        return None

    def check_address(self) -> list[Problem]:
        """Return the problems of the address. This is called before anything is written."""
        return []

    # The files

    @abstractmethod
    def list(self) -> dict[str, int]:
        """Return the size in bytes of every file, by name.

        A place that does not exist yet is empty.

        Raises:
            OSError: the place cannot be read now, or existed earlier and is gone.
        """

    @abstractmethod
    def get(self, name: str, most: int = SMALL) -> bytes:
        """Return the content of a small file; empty if it is too large, or a link or a pipe.

        Args:
            name: the name of the file, which need not exist.
            most: the largest size in bytes. This limits the memory that an untrusted file can use.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    @abstractmethod
    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        """Write small files, replacing existing ones; verify them; then remove other files.

        A file to remove need not exist. If the store supports it, all of these changes and the
        uploads before them are one atomic step.
        """

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a small file only if no file has this name.

        If the store cannot test and write in one step (a weak store, with `settle_seconds` above
        0), two concurrent callers may both get True. Each caller must then wait for
        `settle_seconds` and read the file. The caller whose data the file contains has won. A
        process that is killed during the call can leave an empty or incomplete file.

        Returns:
            True if the file was written; False if it exists, or another writer was faster.
        """

    def put_if_unchanged(
        self, name: str, data: bytes, before: bytes | None, remove: Sequence[str] = ()
    ) -> bool:
        """Write a small file only if its content has not changed; then remove other files.

        A store overrides this if it can test and write in one step. This default cannot: it does
        not detect a writer between the test and the write.

        Args:
            name: the name of the file to write; `before` tells whether it must exist.
            data: the new content.
            before: the expected present content; None if the file must not exist.
            remove: the names of files to remove.

        Returns:
            True if the file has the new content now, even if it had this content before. False if
            the present content is a different one; then nothing is written or removed.
        """
        try:
            present_content: bytes | None = self.get(name)
        except FileNotFoundError:
            present_content = None
        if present_content not in (before, data):
            return False
        # The same content is not written again: a replaced file may be incomplete for a moment.
        self.put({} if present_content == data else {name: data}, remove)
        return True

    def lease_obstacle(self) -> str:
        """Return why a lease in this store would not exclude other machines; empty if it does.

        To find out, the store may write small files, which it removes again.
        """
        return ""

    def abandon_uploads(self, names: Iterable[str]) -> None:  # noqa: B027, most have nothing to do
        """Remove the parts of interrupted uploads of these files, which `list` does not show."""

    def now(self) -> datetime | None:
        """Return the time by the store's own clock, with a time zone; None if it has no clock."""
        return None

    @abstractmethod
    def upload(self, name: str, path: Path, moved: Moved) -> str:
        """Copy a large local file to the store. If possible, continue an interrupted upload.

        Other processes may not see the file before the next `put`. `list`, `get` and `sha256` of
        this process see it at once.

        Returns:
            the SHA-256 of the local bytes in hex digits. The store's copy has the same hash.

        Raises:
            OSError: the store fails, or its copy differs; the next call replaces such a copy.
        """

    def rename(self, name: str, other: str) -> bool:
        """Rename a file to an unused name; return False if the store cannot rename."""
        return False

    @abstractmethod
    def sha256(self, name: str, moved: Moved) -> str | None:
        """Return the SHA-256 of a file in hex digits; None if it does not exist."""

    @abstractmethod
    def download(self, name: str, path: Path, moved: Moved) -> None:
        """Copy a large file to a local path. If possible, continue an interrupted download.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def is_placeholder(self, name: str, nbytes: int) -> bool:
        """Return whether the store itself created a file that nobody has edited since.

        Args:
            name: the name of an existing file.
            nbytes: the file's size in bytes.
        """
        return False


def safe_name(name: str, reserved: str = "") -> str:
    """Return the name of a file in a mirror unchanged if it is a safe path.

    Args:
        name: the name, from an untrusted source.
        reserved: the name of a folder that no file may be in, such as ``.git``; empty for none.

    Raises:
        InputError: the path leads out of the mirror, or into the reserved folder.
    """
    if has_odd_part(name) or reserved in name.split("/"):
        raise refuse(
            "The name of a file points outside of the mirror",
            found=repr(name[:200]),
            fix="do not use this mirror: somebody has tampered with it",
        )
    return name
