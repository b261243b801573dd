"""One file of a model that is elsewhere: its copy in a cache, and the requests for its bytes."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from resumerge.digests import ExpectedContent
from resumerge.errors import InputError, Resumable, ResumergeError, refuse
from resumerge.retry import Backoff, retry_explained
from resumerge.storage import Storage

T = TypeVar("T")

LONGEST_ASKED = 300.0
"""The longest pause in seconds that a server may ask for (``Retry-After``) before a call fails."""

REQUEST = Backoff(first=1, longest=8, retries=4, longest_asked=LONGEST_ASKED)
"""The pauses between attempts of a small request."""

DOWNLOAD = Backoff(first=1, longest=30, retries=6, longest_asked=LONGEST_ASKED)
"""The pauses between attempts to download a file. Attempts that bring more bytes do not count."""

LOCK_SECONDS = 0.5
"""The seconds between two checks while this process waits for another one's lock."""


@dataclass(frozen=True)
class Response:
    """A response whose body has not been read.

    Args:
        status: the HTTP status after redirects.
        headers: the headers, looked up without regard to case.
        chunks: the body, as it arrives.
        abort: closes the connection from another thread; the reading thread gets an error.
    """

    status: int
    headers: Any
    chunks: Iterator[bytes]
    abort: Callable[[], None]

    @property
    def is_encoded(self) -> bool:
        """Whether the server has compressed what it sends."""
        return (self.headers.get("Content-Encoding") or "identity") != "identity"


@dataclass(frozen=True)
class RemoteFile(ABC):
    """One file of a model at one version, and its paths in the cache.

    The cache has one folder of contents, named by their identity, and a folder for each version of
    a model with links to the contents. A download is written to `partial`, and renamed when it is
    complete and intact. A lock makes sure that one process downloads it at a time.

    Args:
        model: the model as messages name it, without the version.
        revision: the version.
        name: the file's name in the model, with ``/`` between folders.
        size: the size in bytes.
        etag: the server's identity of the content.
    """

    model: str
    revision: str
    name: str
    size: int
    etag: str

    # For messages

    @property
    @abstractmethod
    def version(self) -> str:
        """The model with its version."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The file in the model with its version."""

    @abstractmethod
    def never_intact(self, attempts: int) -> Resumable:
        """Return the error after several downloads, each with a wrong content."""

    @abstractmethod
    def offline_error(self, names: list[str]) -> InputError:
        """Return the error for files of this model that are not cached while the network is off."""

    # The cache

    @property
    @abstractmethod
    def cache(self) -> Path:
        """The folder of the whole cache, which is on one disk."""

    @property
    @abstractmethod
    def pointer(self) -> Path:
        """The path under which readers open the file."""

    @property
    @abstractmethod
    def blob(self) -> Path:
        """The path of the file's content, shared by all versions that have it."""

    @property
    @abstractmethod
    def lock(self) -> Path:
        """The file that is locked while the content is downloaded."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """A text that identifies the content: files with other contents have other texts."""

    @abstractmethod
    def is_intact(self, path: Path, check: Callable[[], None] | None = None) -> bool:
        """Read a whole file and return whether its content is the expected one.

        Args:
            path: the file to read.
            check: called often; an exception that it raises ends the reading.
        """

    @property
    def partial(self) -> Path:
        """The file with the bytes that were downloaded so far."""
        return self.blob.with_name(f"{self.blob.name}.incomplete")

    @property
    def content(self) -> Path | None:
        """The existing file with the content, complete or not; None if there is none."""
        for path in (self.pointer, self.blob):
            if path.is_file():
                return path
        return None

    @property
    def inode(self) -> int | None:
        """The inode of `content`."""
        path = self.content
        return path.stat().st_ino if path is not None else None

    @property
    def whole(self) -> bool:
        """Whether `content` has the full size."""
        path = self.content
        return path is not None and path.stat().st_size == self.size

    @property
    def links(self) -> set[Path]:
        """The names in the cache that this version of the model gives to the content."""
        return {self.pointer}

    def link(self) -> None:
        """Make the content readable under its name in the version's folder.

        Where links are not possible, the content is moved there, as huggingface_hub does.
        """
        from huggingface_hub import file_download

        pointer = self.pointer
        if pointer.exists() or not self.blob.is_file():
            return
        pointer.parent.mkdir(parents=True, exist_ok=True)
        if not file_download.are_symlinks_supported(self.cache):
            shutil.move(self.blob, pointer)
            return
        fresh = pointer.with_name(f"{pointer.name}.{uuid.uuid4().hex[:8]}.tmp")
        fresh.symlink_to(os.path.relpath(self.blob, pointer.parent))
        fresh.replace(pointer)

    def put(self, complete: Path, content: ExpectedContent) -> None:
        """Move a complete, synced file to its name in the cache, in place of any damaged one.

        Args:
            complete: the path of the file.
            content: the finished comparison of its bytes.
        """
        if self.pointer.is_file() and not self.pointer.is_symlink():
            self.pointer.unlink()  # a cache without links
        complete.replace(self.blob)
        with suppress(OSError):  # some network filesystems cannot sync; the name is on disk soon
            Storage().sync_folder(self.blob.parent)
        self.link()

    @contextmanager
    def locked(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold the lock on downloads of this content.

        Args:
            check: called every `LOCK_SECONDS` while another process holds the lock; an exception
                that it raises ends the waiting.
        """
        from filelock import Timeout
        from huggingface_hub.utils import WeakFileLock

        self.lock.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            while True:
                check()
                try:
                    stack.enter_context(WeakFileLock(self.lock, timeout=LOCK_SECONDS))
                    break
                except Timeout:
                    continue
            yield

    # The server

    @property
    @abstractmethod
    def is_offline(self) -> bool:
        """Whether the environment forbids requests to this kind of server."""

    @abstractmethod
    def explain(self, error: Exception) -> ResumergeError | None:
        """Return the error to raise for an exception of a request; None if it is a bug."""

    def retry_after(self, error: BaseException) -> float:
        """Return the seconds that the server asks to wait, from the exception of a request."""
        return getattr(error, "retry_after", 0.0)

    def call(
        self,
        do: Callable[[], T],
        *,
        backoff: Backoff = REQUEST,
        sleep: Callable[[float], None] | None = None,
        progress: Callable[[], int] = lambda: 0,
    ) -> T:
        """Make requests, and retry while the network or the server fails temporarily.

        Args:
            do: makes the requests; it must be safe to repeat.
            backoff: the pauses between attempts.
            sleep: waits the given number of seconds; `time.sleep` if None. An exception ends the
                call.
            progress: returns the number of bytes received so far; attempts that add to it do not
                count.

        Raises:
            InputError: the server refuses.
            Resumable: ``network`` after the last attempt; ``disk_full`` without a retry;
                ``source_changed`` if the server has another content under this name now.
        """
        return retry_explained(
            do,
            self.explain,
            backoff,
            retry_after=self.retry_after,
            progress=progress,
            sleep=sleep,
        )

    @abstractmethod
    def request(
        self, start: int, stop: int | None = None, validator: str | None = None
    ) -> AbstractContextManager[Response]:
        """Request bytes ``start:stop`` once, within `call`. The answer may have all bytes.

        Args:
            start: the offset of the first byte.
            stop: the offset after the last byte; None for the end.
            validator: the strong ETag that the server sent with the bytes before; None if there is
                none.
        """

    @abstractmethod
    def expected_content(self) -> Callable[[], ExpectedContent]:
        """Return a function that begins a comparison with the server's hash of the content.

        It may make a request for the hash.
        """

    @abstractmethod
    def refreshed(self) -> Self:
        """Return the file with the size and etag that the server states.

        Raises:
            InputError: the server refuses.
            Resumable: the network failed, or the content changed.
        """

    def whole_transfer(self) -> Callable[[Callable[[int], None]], None] | None:
        """Return a function that transfers the whole file into the cache by the server's library.

        The function calls its argument with the number of bytes so far. None means that the file is
        downloaded by ranges.
        """
        return None

    def read_range(self, start: int, stop: int) -> bytes:
        """Request bytes ``start:stop``. Memory is bounded even if the server ignores ranges.

        Raises:
            InputError: the server denies the file.
            Resumable: the network failed, or the content changed.
        """

        def receive() -> bytes:
            with self.request(start, stop) as response:
                skip = check_answer(self, response, start, stop)
                needed_bytes = skip + stop - start
                received = bytearray()
                for chunk in response.chunks:
                    received += chunk
                    if len(received) >= needed_bytes:
                        break
            if len(received) < needed_bytes:
                raise ConnectionError(
                    f"the server sent only {len(received)} of {needed_bytes} bytes of {self.name}"
                )
            return bytes(received[skip:needed_bytes])

        return self.call(receive) if start < stop else b""


def check_answer(file: RemoteFile, response: Response, start: int, stop: int) -> int:
    """Check that an answer has the bytes of a file that were asked for, or all of its bytes.

    A range may end early. An encoded (compressed) answer is refused: its bytes are not the bytes of
    the file.

    Args:
        file: the file that was requested.
        response: the answer.
        start: the offset of the first byte that was asked for.
        stop: the offset after the last byte.

    Returns:
        the number of bytes of the body that lie before `start`.

    Raises:
        ConnectionError: the answer has other bytes; the next answer may be right.
    """
    if response.status == 200 and not response.is_encoded:
        return start
    span = re.match(r"bytes (\d+)-(\d+)/(\d+|\*)", response.headers.get("Content-Range") or "")
    fits = span and int(span[1]) == start and int(span[2]) < stop
    fits = fits and span and span[3] in (str(file.size), "*")
    if response.status != 206 or response.is_encoded or not fits:
        raise ConnectionError(f"the server sent a range of {file.name} that was not requested")
    return 0


def offline_error(version: str, folder: Path, names: list[str], fix: str) -> InputError:
    """Return the error for files that are not in the cache while the network is off.

    Args:
        version: the model with its version.
        folder: the folder where they should be.
        names: the files.
        fix: what the user can do.
    """
    return refuse(
        "Offline mode is on, and the cache lacks files of this model",
        where=version,
        expected=f"in {folder}",
        found=f"missing: {', '.join(names)}",
        fix=fix,
    )
