"""The forecast of the ranges of remote files that will be read, divided into pieces.

Each piece is received by one request.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from mmap import mmap
from typing import Generic, TypeVar

REQUEST_BYTES = 4 << 20
"""The most bytes of a piece, and therefore of a request."""

NOWHERE = 1 << 63
"""An offset greater than the size of any file."""

File = TypeVar("File", bound=Hashable)
"""The type that identifies a file. Only its equality and hash are used here."""

Range = tuple[File, int, int]
"""The bytes ``start:stop`` of a file."""


class Piece(Generic[File]):
    """A range of a file that one request receives.

    Attributes:
        target: the memory that receives the bytes; None before they are requested.
        is_held: whether the piece owns `target`, so that several readers may read it; otherwise
            `target` is the buffer of one reader.
        is_received: whether all bytes have arrived.
        is_kept: whether the bytes stay in memory after they were read.
        unread: the number of bytes still to be read. A byte that is read twice counts twice.
    """

    __slots__ = ("file", "is_held", "is_kept", "is_received", "start", "stop", "target", "unread")

    def __init__(self, file: File, start: int, stop: int, is_kept: bool) -> None:
        self.file, self.start, self.stop, self.is_kept = file, start, stop, is_kept
        self.target: memoryview | None = None
        self.is_held = self.is_received = False
        self.unread = 0

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    @property
    def is_requested(self) -> bool:
        return self.target is not None

    def hold(self) -> None:
        """Allocate memory that the piece owns, to receive its bytes.

        The memory is an anonymous mapping, so that it returns to the system as soon as its last
        reader releases it.
        """
        self.target, self.is_held = memoryview(mmap(-1, self.nbytes)), True


class Forecast(Generic[File]):
    """The ranges that will be read, in the order of reading.

    Bytes that one step reads several times, or that two successive steps read, are in one piece.

    Args:
        steps: for each step, the ranges that it reads.
        keep: whether the bytes stay in memory after they were read, to be read again.
    """

    def __init__(self, steps: Iterable[Iterable[Range[File]]], *, keep: bool = False) -> None:
        pieces: list[Piece[File]] = []
        previous_cover: _Cover[File] = _Cover()
        for step in steps:
            current_cover: _Cover[File] = _Cover()
            for file, start, stop in step:
                while start < stop:
                    piece = current_cover.at(file, start) or previous_cover.at(file, start)
                    if piece is None:
                        end = min(
                            current_cover.next_start(file, start),
                            previous_cover.next_start(file, start),
                        )
                        piece = Piece(file, start, min(stop, end, start + REQUEST_BYTES), keep)
                        pieces.append(piece)
                        current_cover.add(piece)
                    read_end = min(piece.stop, stop)
                    piece.unread += read_end - start
                    start = read_end
            previous_cover = current_cover
        self._waiting = deque(pieces)
        self._cover: _Cover[File] = _Cover(pieces)

    def __iter__(self) -> Iterator[Piece[File]]:
        return iter(self._cover)

    @property
    def next(self) -> Piece[File] | None:
        """The first piece that is not requested yet."""
        while self._waiting and self._waiting[0].is_requested:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def at(self, file: File, offset: int) -> Piece[File] | None:
        """Return a piece with the byte at an offset that any reader may use; None without one."""
        return self._cover.at(file, offset, lambda piece: piece.is_held or not piece.is_requested)

    def next_start(self, file: File, offset: int) -> int:
        """Return the start of the first piece after an offset; `NOWHERE` if no piece follows."""
        return self._cover.next_start(file, offset)


class _Cover(Generic[File]):
    """A set of pieces, sorted by file and offset."""

    def __init__(self, pieces: Iterable[Piece[File]] = ()) -> None:
        self._of_file: dict[File, list[Piece[File]]] = {}
        for piece in sorted(pieces, key=_start):
            self._of_file.setdefault(piece.file, []).append(piece)

    def __iter__(self) -> Iterator[Piece[File]]:
        for pieces in self._of_file.values():
            yield from pieces

    def add(self, piece: Piece[File]) -> None:
        insort(self._of_file.setdefault(piece.file, []), piece, key=_start)

    def at(
        self,
        file: File,
        offset: int,
        is_wanted: Callable[[Piece[File]], bool] = lambda piece: True,
    ) -> Piece[File] | None:
        """Return a piece that has the byte at an offset; None without one.

        Args:
            file: the file in which the byte is.
            offset: the byte's offset in the file.
            is_wanted: returns whether a piece may be returned.
        """
        pieces = self._of_file.get(file, [])
        for index in range(bisect_right(pieces, offset, key=_start) - 1, -1, -1):
            piece = pieces[index]
            if piece.start + REQUEST_BYTES <= offset:
                break
            if offset < piece.stop and is_wanted(piece):
                return piece
        return None

    def next_start(self, file: File, offset: int) -> int:
        """Return the start of the first piece after an offset; `NOWHERE` if no piece follows."""
        pieces = self._of_file.get(file, [])
        index = bisect_right(pieces, offset, key=_start)
        return pieces[index].start if index < len(pieces) else NOWHERE


def _start(piece: Piece[File]) -> int:
    return piece.start
