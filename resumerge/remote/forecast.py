"""The forecast of the ranges of remote files that will be read, in pieces of one request each."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from mmap import mmap
from typing import Generic, TypeVar

REQUEST_BYTES = 4 << 20
"""The largest number of bytes that one request asks for."""

NOWHERE = 1 << 63
"""An offset behind every file's end."""

File = TypeVar("File", bound=Hashable)
"""The type that identifies a file. Only its equality is used here."""

Range = tuple[File, int, int]
"""The bytes ``start:stop`` of a file."""


class Piece(Generic[File]):
    """A range that one request asks for.

    Attributes:
        target: the memory that receives the bytes; None before they are requested.
        is_held: whether `target` belongs to the piece, so that other readers may read it as well.
        is_received: whether all bytes have arrived.
        is_kept: whether the bytes stay in memory after they were read.
        unread: the number of bytes still to be read; a byte counts once for each reading.
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
        """Allocate the piece's own memory, which receives its bytes.

        The memory is mapped for the piece alone: it returns to the system as soon as nobody reads
        it, whichever thread allocated it.
        """
        self.target, self.is_held = memoryview(mmap(-1, self.nbytes)), True


class Forecast(Generic[File]):
    """The ranges that will be read, in the order of reading.

    Bytes that are read several times by one step, or by a step and the next one, are in one piece.

    Args:
        steps: the ranges that are read together, one step after the other.
        keep: whether bytes stay in memory after they were read, to be read again.
    """

    def __init__(self, steps: Iterable[Iterable[Range[File]]], *, keep: bool = False) -> None:
        pieces: list[Piece[File]] = []
        before: _Cover[File] = _Cover()
        for step in steps:
            now: _Cover[File] = _Cover()
            for file, start, stop in step:
                while start < stop:
                    piece = now.at(file, start) or before.at(file, start)
                    if piece is None:
                        end = min(now.next_start(file, start), before.next_start(file, start))
                        piece = Piece(file, start, min(stop, end, start + REQUEST_BYTES), keep)
                        pieces.append(piece)
                        now.add(piece)
                    last = min(piece.stop, stop)
                    piece.unread += last - start
                    start = last
            before = now
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
        """Return a piece that has the byte at an offset, if it can be read by anybody."""
        return self._cover.at(file, offset, lambda piece: piece.is_held or not piece.is_requested)

    def next_start(self, file: File, offset: int) -> int:
        """Return where the first piece after an offset begins; `NOWHERE` if there is none."""
        return self._cover.next_start(file, offset)


class _Cover(Generic[File]):
    """Pieces by their places."""

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
        """Return a piece that has the byte at an offset."""
        pieces = self._of_file.get(file, [])
        for place in range(bisect_right(pieces, offset, key=_start) - 1, -1, -1):
            piece = pieces[place]
            if piece.start + REQUEST_BYTES <= offset:
                break
            if offset < piece.stop and is_wanted(piece):
                return piece
        return None

    def next_start(self, file: File, offset: int) -> int:
        """Return where the first piece after an offset begins; `NOWHERE` if there is none."""
        pieces = self._of_file.get(file, [])
        place = bisect_right(pieces, offset, key=_start)
        return pieces[place].start if place < len(pieces) else NOWHERE


def _start(piece: Piece[File]) -> int:
    return piece.start
