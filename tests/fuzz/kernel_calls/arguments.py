"""Right arguments: vectors, arrays and numbers that a function accepts together."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from resumerge.native import KINDS
from resumerge.native._kernels import CHUNK, Vector

LENGTHS = (0, 1, 2, 7, 8, 31, 33, 100, 255, 256, 257, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK)
ROWS = (1, 2, 5, 64, 256, 257, 700, CHUNK + 3)


def _about_normal(random: Random, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw sums of uniform numbers: they are exact, so every processor and NumPy finds the same."""
    whole = np.frombuffer(random.randbytes(24 * count), "<u2").reshape(12, count)
    return (whole.sum(0, np.int64) * 2.0**-16 - 6.0).astype(np.float32)


_SIZE = 1 << 18
_random = Random(0)
CONTENTS = (
    _random.randbytes(_SIZE),  # every exponent, NaN and infinities
    _about_normal(_random, _SIZE // 4).tobytes(),
    (_random.randbytes(24) * _SIZE)[:_SIZE],  # few different elements
    bytes(_SIZE),
)
ARENA = 1 << 13
"""Bytes that overlapping arrays share."""

FILE_SIZE = 10_000


class Files:
    """Descriptors of files in a folder, and others.

    Attributes:
        good: the descriptor of a file of `FILE_SIZE` bytes.
        bad: descriptors that cannot be read by position.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "numbers"
        path.write_bytes(CONTENTS[0][:FILE_SIZE])
        self.good = os.open(path, os.O_RDONLY)
        self.bad = (os.open(path, os.O_WRONLY), os.open(folder, os.O_RDONLY), *os.pipe(), 9999)


class Arguments:
    """The draws of arguments for the calls of one case.

    Args:
        draw: the source of random numbers.
        files: the descriptors to read from.
        overlaps: whether some arrays share memory, also with arrays of other types.

    Attributes:
        row, stride: the elements of a row, and a number of rows; often they divide `length`.
        lists: lists that were passed, and that a wrong argument may empty.
        buffers: resizable buffers of arrays; resizing them fails while a call uses them.
        results: arrays that functions write to.
        outputs: the results that are stored: in these, NaN has one pattern of bits.
        constants: bytes that must not be written to, with their contents.
        meddled: whether a list or a buffer was changed during a call.
    """

    def __init__(self, draw: Random, files: Files, *, overlaps: bool = True) -> None:
        self.draw, self.files, self._overlaps = draw, files, overlaps
        self.row, self.stride = draw.choice(ROWS), draw.choice((1, 1, 2, 3))
        if draw.random() < 0.6:
            self.length = draw.choice(LENGTHS)
        else:
            self.length = self.row * self.stride * draw.randrange(4)
        self.lists: list[list[Any]] = []
        self.buffers: list[Any] = []
        self.results: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[tuple[bytes, bytes]] = []
        self.meddled = False
        self._vectors: list[Vector] = []
        self._arena = bytearray(CONTENTS[0][:ARENA])

    def array(self, kind: Any, count: int | None = None) -> Any:
        """Return a writable array, in memory of its own or in memory that it shares with others."""
        count = self.length if count is None else count
        kind = np.dtype(kind)
        size, draw = count * kind.itemsize, self.draw
        at = draw.randrange(0, max(_SIZE - size, 1), 8)
        content = draw.choice(CONTENTS)[at : at + size]
        if len(content) < size:
            return np.zeros(count, kind)
        match draw.randrange(10):
            case 0:
                content = bytearray(content)
                self.buffers.append(content)
                return memoryview(content).cast(kind.char)
            case 1:
                found = array(kind.char.replace("?", "B"), content)
                self.buffers.append(found)
                return found
            case 2 | 3 if self._overlaps and size < ARENA:
                at = draw.randrange(0, ARENA - size, 8)
                return np.frombuffer(self._arena, kind, count, at)
        return np.frombuffer(content, kind).copy()

    def result(self, kind: Any, count: int | None = None) -> Any:
        """Return an array that the call writes to."""
        found = self.array(kind, count)
        self.results.append(found)
        return found

    def vector(self, base: Vector | None = None, length: int | None = None) -> Vector:
        code = self.draw.randrange(len(KINDS))
        found = Vector(self.array(KINDS[code], length), code, base)
        self._vectors.append(found)
        return found

    def out(self, *, keeps: bool | None = None) -> Vector:
        """Return a vector that the call writes to: a new one, or one that it also reads.

        Args:
            keeps: whether it keeps exact results; None for a random choice.
        """
        found = self.draw.choice(self._vectors) if self.draw.random() < 0.2 else self.vector()
        self.results.append(found.data)
        self.outputs.append(found.data)
        keeps = self.draw.random() < 0.3 if keeps is None else keeps
        return Vector(found.data, found.dtype, None, *(self.kept() if keeps else ()))

    def kept(self) -> list[Any]:
        """Return what makes a vector keep exact results: room, block, measured."""
        block = self.draw.choice((1, 7, 256, CHUNK, CHUNK + 1, 2**40))
        measured = self.draw.choice((1, min(3, block), block))
        whole, rest = divmod(self.length, block)
        return [self.result(np.float32, whole * measured + min(rest, measured)), block, measured]

    def number_of_vectors(self) -> int:
        return self.draw.choice((1, 1, 2, 2, 3, 4, 5, 9, 33))

    def any_vector(self) -> Vector:
        return self.vector(self.vector() if self.draw.random() < 0.4 else None)

    def vectors(self) -> list[Vector]:
        """Return vectors, some of them with bases of their own."""
        return [self.any_vector() for _ in range(self.number_of_vectors())]

    def family(self, base: Vector | None) -> list[Vector]:
        """Return vectors of one base."""
        return [self.vector(base) for _ in range(self.number_of_vectors())]

    def sequence(self, items: Sequence[Any]) -> Any:
        """Return the items as a list, a tuple or a generator."""
        given = list(items)
        self.lists.append(given)
        match self.draw.randrange(5):
            case 0:
                return tuple(given)
            case 1:
                return (item for item in given)
        return given

    def float(self) -> Any:
        draw = self.draw
        return draw.choice((0.0, 1.0, -0.5, 1, 0.25, draw.random(), draw.uniform(-4e9, 4e9), -1.0))

    def floats(self, items: Sequence[Any]) -> Any:
        """Return a number for each of some items."""
        return self.sequence([self.float() for _ in items])

    def block(self) -> int:
        """Return the number of elements of a block."""
        draw = self.draw
        return draw.choice((1, 3, 100, CHUNK, max(self.length, 1), self.length + 1, 1 << 50))

    def rows(self) -> int:
        """Return a number of elements of a row of which the length is a multiple."""
        return next(row for row in (self.row, self.stride, 1) if self.length % row == 0)

    def blocks(self, block: int) -> int:
        return -(-self.length // block)

    def mask(self) -> Any:
        kind = self.draw.choice((None, np.uint8, np.bool_))
        return None if kind is None else np.asarray(self.array(np.uint8)).view(kind)

    def key(self) -> Any:
        return self.draw.choice((bytes(16), bytearray(16), self.array(np.uint8, 16)))

    def uint32(self) -> int:
        draw = self.draw
        return draw.choice((0, 1, 0x7F800000, 0x80000000, 0xFFFFFFFF, draw.getrandbits(32)))

    def uint64(self) -> int:
        return self.draw.getrandbits(64)
