"""One file of a model on a server: its copy in the cache, and the requests for its bytes."""

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
"""The limit in seconds of a server's ``Retry-After``. A call fails if the server asks for more."""

REQUEST = Backoff(first=1, longest=8, retries=4, longest_asked=LONGEST_ASKED)
"""The pauses between the tries of a small request."""

DOWNLOAD = Backoff(first=1, longest=30, retries=6, longest_asked=LONGEST_ASKED)
"""The pauses between the tries of a download. Tries that receive more bytes do not count."""

LOCK_SECONDS = 0.5
"""The seconds between two calls of `check` while another process holds the lock."""


@dataclass(frozen=True)
class Response:
    """A response whose body has not been read.

    Args:
        status: the HTTP status after redirects.
        headers: the headers, a mapping that ignores case.
        chunks: the body, in pieces as they arrive.
        abort: closes the connection from another thread; the reading thread gets an error.
    """

    status: int
    headers: Any
    chunks: Iterator[bytes]
    abort: Callable[[], None]

    @property
    def is_encoded(self) -> bool:
        """Whether the server has compressed the body."""
        return (self.headers.get("Content-Encoding") or "identity") != "identity"


@dataclass(frozen=True)
class RemoteFile(ABC):
    """One file of a model at one version, and its paths in the cache.

    The cache has one folder of contents, named by their identity. It also has one folder for each
    version of a model, with links to the contents. A download is written to `partial`, and renamed
    when it is complete and intact. A lock prevents concurrent downloads of the same content.

    Args:
        model: the model's name or address in messages, without the version.
        revision: the commit of a Hub repo, or the digest of a bucket's listing.
        name: the file's name in the model, with ``/`` between folders.
        size: the size in bytes.
        etag: the server's identifier of the content.
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
        """The model with its version, for messages."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The file's address, with the model and its version, for messages."""

    @abstractmethod
    def never_intact(self, attempts: int) -> Resumable:
        """Return the error after `attempts` downloads whose content was always wrong."""

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
        """The path in the version's folder, by which readers open the file."""

    @property
    @abstractmethod
    def blob(self) -> Path:
        """The path of the content, shared by all versions of the model with this content."""

    @property
    @abstractmethod
    def lock(self) -> Path:
        """The file that is locked while the content is downloaded."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """A text that identifies the content: it differs between different contents."""

    @abstractmethod
    def is_intact(self, path: Path, check: Callable[[], None] | None = None) -> bool:
        """Read a whole file, and return whether it has the expected content.

        Args:
            path: the file to read.
            check: called often; may raise to end the reading.
        """

    @property
    def partial(self) -> Path:
        """The path of the file that an unfinished download writes."""
        return self.blob.with_name(f"{self.blob.name}.incomplete")

    @property
    def content(self) -> Path | None:
        """The existing file of `pointer` and `blob`, complete or not; None if both are missing."""
        for path in (self.pointer, self.blob):
            if path.is_file():
                return path
        return None

    @property
    def inode(self) -> int | None:
        """The inode of `content`; None without a file."""
        path = self.content
        return path.stat().st_ino if path is not None else None

    @property
    def whole(self) -> bool:
        """Whether `content` has the full size."""
        path = self.content
        return path is not None and path.stat().st_size == self.size

    @property
    def links(self) -> set[Path]:
        """The paths in the cache that link to the content."""
        return {self.pointer}

    def link(self) -> None:
        """Link the content to its name in the version's folder.

        If the filesystem has no symbolic links, the content is moved there instead, as
        huggingface_hub does.
        """
        from huggingface_hub import file_download

        pointer = self.pointer
        if pointer.exists() or not self.blob.is_file():
            return
        pointer.parent.mkdir(parents=True, exist_ok=True)
        if not file_download.are_symlinks_supported(self.cache):
            shutil.move(self.blob, pointer)
            return
        new_link = pointer.with_name(f"{pointer.name}.{uuid.uuid4().hex[:8]}.tmp")
        new_link.symlink_to(os.path.relpath(self.blob, pointer.parent))
        new_link.replace(pointer)

    def put(self, complete: Path, content: ExpectedContent) -> None:
        """Move a complete, synced file to its path in the cache, replacing a damaged file.

        Args:
            complete: the path of the complete file, which is renamed.
            content: the finished comparison of the file's bytes.
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
            check: called every `LOCK_SECONDS` while another process holds the lock; may raise to
                end the waiting.
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
        """Return the seconds of waiting that the server requested in a failed response, or 0."""
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
            backoff: the pauses between tries.
            sleep: called to wait for a number of seconds; may raise to end the call. None for
                `time.sleep`.
            progress: returns the number of bytes received so far. A try that increases it does not
                count.

        Raises:
            InputError: the server refuses.
            Resumable: ``network`` after the last try; ``disk_full`` without a retry;
                ``source_changed`` if the server has other content under this name now.
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
        """Request bytes ``start:stop`` once. The response may contain the whole file instead.

        Use this within `call`, which retries and translates errors.

        Args:
            start: the offset of the first byte.
            stop: the offset after the last byte; None for the end.
            validator: the strong ETag that the server sent with the bytes before `start`; None if
                it sent none.
        """

    @abstractmethod
    def expected_content(self) -> Callable[[], ExpectedContent]:
        """Return a function that begins a comparison with the server's hash of the content.

        This method may make a request for the hash.
        """

    @abstractmethod
    def refreshed(self) -> Self:
        """Request the size and etag from the server, and return the file with them.

        Raises:
            InputError: the server refuses.
            Resumable: the network failed, or the content changed.
        """

    def whole_transfer(self) -> Callable[[Callable[[int], None]], None] | None:
        """Return a function that downloads the whole file into the cache by the server's library.

        The function calls its argument with the number of bytes received so far.

        Returns:
            the function; None if the file has to be downloaded by range requests.
        """
        return None

    def read_range(self, start: int, stop: int) -> bytes:
        """Request and return bytes ``start:stop``.

        If the server ignores ranges, the body is read up to `stop`, and bytes before `start` are
        discarded as they arrive.

        Raises:
            InputError: the server denies the file.
            Resumable: the network failed, or the content changed.
        """

        def receive() -> bytes:
            with self.request(start, stop) as response:
                skip_bytes = check_answer(self, response, start, stop)
                body = bytearray()
                for chunk in response.chunks:
                    body += chunk[skip_bytes:]
                    skip_bytes = max(0, skip_bytes - len(chunk))
                    if len(body) >= stop - start:
                        break
            if len(body) < stop - start:
                raise ConnectionError(
                    f"the server sent only {len(body)} of {stop - start} bytes of {self.name}"
                )
            return bytes(body[: stop - start])

        return self.call(receive) if start < stop else b""


def check_answer(file: RemoteFile, response: Response, start: int, stop: int) -> int:
    """Verify that a response has the requested range of a file, or the whole file.

    A range may end early. An encoded (compressed) response is refused, because its bytes are not
    the bytes of the file.

    Args:
        file: the file that was requested.
        response: the response, of which only the status and the headers are read.
        start: the offset of the first requested byte.
        stop: the offset after the last requested byte.

    Returns:
        the number of bytes to skip at the start of the body: those before `start`.

    Raises:
        ConnectionError: the response has other bytes. A retry may succeed.
    """
    if response.status == 200 and not response.is_encoded:
        return start
    range_match = re.match(
        r"bytes (\d+)-(\d+)/(\d+|\*)", response.headers.get("Content-Range") or ""
    )
    is_requested_range = range_match and int(range_match[1]) == start and int(range_match[2]) < stop
    is_requested_range = (
        is_requested_range and range_match and range_match[3] in (str(file.size), "*")
    )
    if response.status != 206 or response.is_encoded or not is_requested_range:
        raise ConnectionError(f"the server sent a range of {file.name} that was not requested")
    return 0


def offline_error(version: str, folder: Path, names: list[str], fix: str) -> InputError:
    """Return the error for files that are not in the cache while the network is off.

    Args:
        version: the model with its version.
        folder: the folder that should contain the files.
        names: the names of the missing files.
        fix: the advice for the user.
    """
    return refuse(
        "Offline mode is on, and the cache lacks files of this model",
        where=version,
        expected=f"in {folder}",
        found=f"missing: {', '.join(names)}",
        fix=fix,
    )
