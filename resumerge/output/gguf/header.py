"""The first bytes of a GGUF file: metadata, and the offset of each tensor.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from resumerge.sources.formats.gguf import CODED, MAGIC, PLAIN, USUAL_ALIGNMENT

VERSION = 3
ALIGNMENT = USUAL_ALIGNMENT

Value = bool | int | float | str | Sequence[str] | np.ndarray
"""A value of the metadata. Arrays have dtype int32 or float32, or are sequences of texts."""

_UINT32, _INT32, _FLOAT32, _BOOL, _TEXT, _ARRAY = 4, 5, 6, 7, 8, 9
_CODES = {name: code for code, name in PLAIN.items()} | {
    name: code for code, (name, _, _) in CODED.items()
}


@dataclass(frozen=True)
class Placed:
    """A tensor with its place in the file.

    Args:
        name: the tensor's name in the file.
        shape: the shape, the innermost dimension last.
        type: the name of the type in GGUF.
        offset: the offset in bytes from the end of the header.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int


def aligned_end(nbytes: int) -> int:
    """Return the least multiple of `ALIGNMENT` that is not below `nbytes`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def header(values: Mapping[str, Value], tensors: Sequence[Placed]) -> bytes:
    """Return the header, padded with zeros to the start of the first tensor.

    Args:
        values: the metadata, by key.
        tensors: the tensors, in the order of the file.

    Raises:
        UnicodeEncodeError: a text cannot be encoded as UTF-8.
    """
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(values))]
    for name, value in values.items():
        parts += [_text(name), *_value(value)]
    for tensor in tensors:
        shape = tensor.shape[::-1]
        parts += [_text(tensor.name), struct.pack(f"<I{len(shape)}Q", len(shape), *shape)]
        parts.append(struct.pack("<IQ", _CODES[tensor.type], tensor.offset))
    size = sum(map(len, parts))
    return b"".join([*parts, bytes(aligned_end(size) - size)])


def _value(value: Value) -> Iterable[bytes]:
    if isinstance(value, bool):
        yield struct.pack("<I?", _BOOL, value)
    elif isinstance(value, int):
        yield struct.pack("<II", _UINT32, value)
    elif isinstance(value, float):
        yield struct.pack("<If", _FLOAT32, value)
    elif isinstance(value, str):
        yield struct.pack("<I", _TEXT) + _text(value)
    elif isinstance(value, np.ndarray):
        kind = _FLOAT32 if value.dtype == np.float32 else _INT32
        yield struct.pack("<IIQ", _ARRAY, kind, len(value))
        yield value.astype("<f4" if kind == _FLOAT32 else "<i4").tobytes()
    else:
        yield struct.pack("<IIQ", _ARRAY, _TEXT, len(value))
        yield from map(_text, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
