"""Ranges of remote files, read into memory ahead of their use and not stored on disk.

A request takes a round trip before its first byte arrives. Callers therefore announce future reads
(`RangeReader.expect`). Several threads request these ranges in the announced order, within a limit
of memory. Only these threads use the network. Readers wait for them, and a wait can be stopped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from resumerge.errors import InputError, Reason, Resumable, unavailable
from resumerge.remote.file import DOWNLOAD, RemoteFile, Response, check_answer
from resumerge.remote.forecast import REQUEST_BYTES, Forecast, Piece, Range

THREADS = 16
"""The most concurrent requests.

`AHEAD_BYTES` permits fewer large requests than this. Samples need many small requests.
"""

AHEAD_BYTES = 32 << 20
"""The most bytes that may be requested or received but not read yet."""

WAIT_SECONDS = 0.2
"""The seconds between two calls of `check` while a reader waits."""

STOP_SECONDS = 0.2
"""The most seconds that `close` waits for the threads to end."""


class RangeReader:
    """A reader of ranges of remote files. Threads may share it.

    Args:
        check: called often while a reader waits; may raise to end the waiting.

    Attributes:
        bytes_received: the number of bytes received for all pieces.
        requests: the number of requests with a response, including repeated requests.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self.bytes_received = self.requests = 0
        self._check = check
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._expected: list[Forecast[RemoteFile]] = []
        self._urgent: deque[Piece[RemoteFile]] = deque()
        self._held = 0
        self._responses: list[Response] = []
        self._failure: Exception | None = None
        self._stopped = threading.Event()

    def expect(
        self, steps: Iterable[Iterable[Range[RemoteFile]]], *, keep: bool = False
    ) -> Forecast[RemoteFile]:
        """Announce ranges that will be read, after the ranges that were announced earlier.

        Args:
            steps: for each step, the ranges that it reads.
            keep: whether ranges stay in memory after a read, until `forget`, to be read again.

        Returns:
            the forecast; pass it to `forget` after the reads.
        """
        forecast = Forecast(steps, keep=keep)
        with self._changed:
            self._expected.append(forecast)
            self._wake()
        return forecast

    def forget(self, expected: Forecast[RemoteFile]) -> None:
        """Free the memory of a forecast whose ranges will not be read again."""
        with self._changed:
            if expected in self._expected:
                self._expected.remove(expected)
                for piece in expected:
                    self._drop(piece)
                self._wake()

    def fill(self, file: RemoteFile, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes of a file from an offset on.

        Raises:
            Resumable: the network failed after all retries, the server denies the file, or the
                file's content has changed.
        """
        with self._changed:
            buffer_parts = list(self._parts(file, offset, buffer))
            self._wake()
        for piece, source_bytes, target in buffer_parts:
            self._wait(piece)
            if source_bytes is not None:
                target[:] = source_bytes
                with self._changed:
                    piece.unread -= len(target)
                    if piece.unread <= 0 and not piece.is_kept:
                        self._drop(piece)
                        self._changed.notify_all()

    def count(self, nbytes: int, requests: int) -> None:
        """Add the bytes and requests of another process of the same merge to the counters."""
        with self._changed:
            self.bytes_received += nbytes
            self.requests += requests

    def close(self) -> None:
        """Abort all requests and end the threads."""
        with self._changed:
            self._stopped.set()
            self._changed.notify_all()
            responses = list(self._responses)
        for response in responses:
            response.abort()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # Methods whose caller holds the lock

    def _parts(
        self, file: RemoteFile, offset: int, buffer: memoryview
    ) -> Iterator[tuple[Piece[RemoteFile], memoryview | None, memoryview]]:
        """Yield the parts of a buffer: the piece, its memory to copy from, the memory to copy to.

        The memory to copy from is None for a piece that is received directly into the buffer.
        """
        current_offset, stop = offset, offset + len(buffer)
        while current_offset < stop:
            piece = next(
                filter(None, (forecast.at(file, current_offset) for forecast in self._expected)),
                None,
            )
            if piece is None:
                starts = (forecast.next_start(file, current_offset) for forecast in self._expected)
                piece = Piece(
                    file,
                    current_offset,
                    min([stop, current_offset + REQUEST_BYTES, *starts]),
                    False,
                )
            part_end = min(piece.stop, stop)
            target = buffer[current_offset - offset : part_end - offset]
            if not piece.is_requested:
                self._urgent.append(piece)
                if piece.unread <= piece.nbytes == part_end - current_offset and not piece.is_kept:
                    piece.target = target
                else:
                    self._hold(piece)
            source_bytes = None
            if piece.is_held and piece.target is not None:
                source_bytes = piece.target[current_offset - piece.start : part_end - piece.start]
            yield piece, source_bytes, target
            current_offset = part_end

    def _hold(self, piece: Piece[RemoteFile]) -> None:
        piece.hold()
        self._held += piece.nbytes

    def _drop(self, piece: Piece[RemoteFile]) -> None:
        """Release the memory of a piece. A reader that is copying from it keeps its own view."""
        if piece.is_held:
            piece.is_held = False
            self._held -= piece.nbytes
            piece.target = _READ

    def _wake(self) -> None:
        """Wake the threads, which then look for the next piece. The first call starts them."""
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._work, name=f"range {n}", daemon=True)
                for n in range(THREADS)
            ]
            for thread in self._threads:
                thread.start()
        self._changed.notify_all()

    def _next(self) -> Piece[RemoteFile] | None:
        """Return the next piece to request; None if there is nothing to request now.

        Pieces that a reader waits for come first.
        """
        if self._urgent:
            return self._urgent.popleft()
        piece = next(filter(None, (forecast.next for forecast in self._expected)), None)
        if piece is None or self._held + piece.nbytes > AHEAD_BYTES:
            return None
        self._hold(piece)
        return piece

    # Methods whose caller does not hold the lock

    def _wait(self, piece: Piece[RemoteFile]) -> None:
        while not piece.is_received:
            with self._changed:
                self._changed.wait_for(
                    lambda: piece.is_received or self._failure is not None, WAIT_SECONDS
                )
                if self._failure is not None:
                    raise self._failure
            self._check()

    def _work(self) -> None:
        while True:
            with self._changed:
                while (piece := self._next()) is None and not self._stopped.is_set():
                    self._changed.wait()
            if piece is None or self._stopped.is_set():
                return
            self._request(piece)

    def _request(self, piece: Piece[RemoteFile]) -> None:
        """Receive a piece, retrying after failures, and wake the readers that wait for it."""
        try:
            self._receive(piece)
        except _Stopped:
            return
        except Exception as error:
            with self._changed:
                self._failure = self._failure or _for_now(error)
                self._changed.notify_all()
        else:
            with self._changed:
                piece.is_received = True
                self._changed.notify_all()

    def _receive(self, piece: Piece[RemoteFile]) -> None:
        """Receive a piece into its memory, with further requests after failures."""
        file, target, byte_count = piece.file, piece.target or _READ, 0
        if len(target) < piece.nbytes:
            return  # the piece was forgotten before its request

        def receive() -> None:
            nonlocal byte_count
            start = piece.start + byte_count
            with file.request(start, piece.stop) as response, self._abortable(response):
                _refuse_whole_file(file, response, start, piece.stop)
                check_answer(file, response, start, piece.stop)
                for chunk in response.chunks:
                    if self._stopped.is_set():
                        raise _Stopped
                    if byte_count + len(chunk) > piece.nbytes:
                        raise ConnectionError(f"the server sent more of {file.name} than asked for")
                    target[byte_count : byte_count + len(chunk)] = chunk
                    byte_count += len(chunk)
            if byte_count < piece.nbytes:
                raise ConnectionError(
                    f"the server sent only {byte_count} of {piece.nbytes} bytes of {file.name}"
                )

        try:
            file.call(receive, backoff=DOWNLOAD, sleep=self._sleep, progress=lambda: byte_count)
        finally:
            with self._changed:
                self.bytes_received += byte_count

    @contextmanager
    def _abortable(self, response: Response) -> Iterator[None]:
        with self._changed:
            self.requests += 1
            self._responses.append(response)
        try:
            yield
        finally:
            with self._changed:
                self._responses.remove(response)

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _Stopped


_READ = memoryview(b"")
"""The memory of a piece that is no longer needed: 0 bytes."""


class _Stopped(Exception):
    """An error: the reader was closed."""


def _for_now(error: Exception) -> Exception:
    """Return an error as `Resumable` if the server denies the file, because that may change."""
    if isinstance(error, InputError):
        return unavailable(error)
    return error


def _refuse_whole_file(file: RemoteFile, response: Response, start: int, stop: int) -> None:
    """Refuse a response with the whole file to a request for a part of it.

    Raises:
        Resumable: the server ignores ranges and sends the whole file.
    """
    if response.status == 200 and (start, stop) != (0, file.size):
        raise Resumable(
            Reason.SOURCE_UNAVAILABLE,
            f"The server ignores which bytes of {file.where} are asked for, and sends all of them: "
            "--stream cannot read from it. Resume with --evict, which downloads each file, and "
            "deletes it when it is no longer needed.",
        )
