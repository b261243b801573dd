"""Wrong arguments: one or two of the right ones are replaced."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from mmap import PROT_READ, mmap
from typing import Any

import numpy as np

from fuzz.kernel_calls.arguments import Arguments
from resumerge.native._kernels import Vector

INTEGERS = tuple(
    sign * (1 << bits) + near
    for bits in (0, 8, 16, 31, 32, 52, 60, 62, 63, 64, 65, 1000)
    for sign in (-1, 1)
    for near in (-1, 0, 1)
)
NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e308, -1e-320, 10**400, -(10**400), 2**1023)
OTHERS = (None, "text", "\ud800", b"", b"bytes", 1j, object(), (), [], {}, {1: 2}, int, ..., "1")
KINDS = ("f4", "f8", "u2", "u1", "i1", "i8", "u8", "u4", "f2", ">f4", "S4", "c8", "?", "O", "f4,f4")


PROTECTED = mmap(-1, 1 << 18, prot=PROT_READ)


class Refusal(Exception):
    """The error that an argument itself raises."""


class Meddler:
    """A number that changes the call's other arguments while it is read.

    Args:
        value: its value.
        given: the call's arguments: their lists are emptied, their buffers resized if possible.
    """

    def __init__(self, value: Any, given: Arguments) -> None:
        self._value, self._given = value, given

    def _read(self) -> Any:
        given = self._given
        given.meddled = True
        for items in given.lists:
            items.clear()
        for buffer in given.buffers:
            with suppress(BufferError):
                buffer.extend(bytes(999)) if isinstance(buffer, bytearray) else buffer.append(1)
            with suppress(BufferError):
                del buffer[:]
        if given.draw.random() < 0.3:
            raise Refusal
        return self._value

    def __index__(self) -> int:
        return int(self._read())

    def __float__(self) -> float:
        return float(self._read())

    def __bool__(self) -> bool:
        return bool(self._read())


class Shrinking(list[Any]):
    """A list that becomes shorter as it is read, and then raises."""

    def __iter__(self) -> Iterator[Any]:
        while self:
            yield self.pop()
        raise Refusal


def make_wrong(arguments: list[Any], given: Arguments) -> None:
    """Replace some arguments, leave some out, or add one."""
    draw = given.draw
    places = range(len(arguments))
    for at in draw.sample(places, min(draw.choice((1, 1, 1, 2)), len(places))):
        arguments[at] = _wrong(arguments[at], given)
    if not arguments or draw.random() < 0.03:
        arguments[draw.randrange(len(arguments) + 1) :] = draw.choice(([], [None]))


def _wrong(right: Any, given: Arguments) -> Any:
    draw = given.draw
    if draw.random() < 0.1:
        return draw.choice(OTHERS)
    match right:
        case bool() | int() | float():
            return _number(right, given)
        case Vector():
            return _vector(right, given)
        case tuple() if right:
            at = draw.randrange(len(right))
            return (*right[:at], _wrong(right[at], given), *right[at + 1 :])
        case list() | tuple():
            return _sequence(list(right), given)
    if hasattr(right, "__next__"):
        return _sequence(list(right), given)
    try:
        array = np.asarray(memoryview(right))
    except TypeError:
        return draw.choice(OTHERS)
    return _array(array, given)


def _number(right: Any, given: Arguments) -> Any:
    draw = given.draw
    match draw.randrange(6):
        case 0:
            return Meddler(right, given)
        case 1:
            return right + draw.choice((-1, 1, -right))
        case 2:
            return draw.choice(NUMBERS)
        case 3:
            return np.float64(right) if draw.random() < 0.5 else np.int64(min(right, 1 << 60))
    return draw.choice(INTEGERS)


def _vector(right: Vector, given: Arguments) -> Any:
    draw = given.draw
    data = np.asarray(right.data)
    match draw.randrange(6):
        case 0:
            return given.vector(length=max(given.length + draw.choice((-1, 1, 7)), 0))
        case 4:
            with suppress(ValueError):  # no such vector can be made
                return given.vector().less(given.vector(length=given.length // 2))
        case 1:
            return given.vector().less(given.vector())
        case 2:
            return Vector(_read_only(data), right.dtype)
        case 3:
            return right.data
    return Vector(data, right.dtype, right.base)


def _sequence(right: list[Any], given: Arguments) -> Any:
    draw = given.draw
    if right and draw.random() < 0.5:
        at = draw.randrange(len(right))
        right[at] = _wrong(right[at], given)
        given.lists.append(right)
        return right
    match draw.randrange(7):
        case 0:
            return right[:-1]
        case 1:
            return right + right[-1:]
        case 2:
            return Shrinking(right)
        case 3:
            return _raising(right)
        case 4:
            return _draining(right)
        case 5 if draw.random() < 0.1:
            return right * (1 << 15)
    return right[0] if right else [None]


def _read_only(like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in read-only memory: a write to it ends the process."""
    return np.frombuffer(PROTECTED, like.dtype, min(like.size, len(PROTECTED) // like.itemsize))


def _raising(items: list[Any]) -> Iterator[Any]:
    yield from items[:-1]
    raise Refusal


def _draining(items: list[Any]) -> Iterator[Any]:
    """Yield the items of a list, each of which it has lost by then."""
    while items:
        yield items.pop(0)


def _array(right: np.ndarray[Any, Any], given: Arguments) -> Any:
    draw, count, width = given.draw, right.size, right.itemsize
    match draw.randrange(9):
        case 0:
            return given.array(right.dtype, max(count + draw.choice((-1, 1, 5)), 0))
        case 1:
            return np.zeros(count, draw.choice(KINDS))
        case 2:
            return np.zeros(2 * count, right.dtype)[:: draw.choice((2, -2))]
        case 3:
            return memoryview(bytearray(count * width + 1))[1:].cast(right.dtype.char)
        case 4:
            constant, content = right.tobytes(), right.tobytes()
            given.constants.append((constant, content))
            return constant
        case 5:
            return _read_only(right)
        case 6:
            return np.zeros((3, count), right.dtype, order=draw.choice(("C", "F")))
        case 7:
            released = memoryview(bytearray(count * width))
            released.release()
            return released
    return (ctypes.c_uint8 * (count * width)).from_buffer_copy(right.tobytes())
