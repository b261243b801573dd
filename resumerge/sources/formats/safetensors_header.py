"""Safetensors headers, validated: a file that lies about itself is refused before it is used.

The format: 8 bytes little-endian length of the header, the header in JSON, then the data; every
tensor's ``data_offsets`` count from the start of the data, and the data has neither holes nor
overlaps.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from resumerge.sources.dtypes import BITS
from resumerge.sources.formats.damaged import damaged
from resumerge.sources.types import TensorInfo

MAX_HEADER = 100_000_000
"""Bytes; the limit of the reference implementation."""

_broken = partial(damaged, "safetensors file")


def read_header(path: Path, name: str) -> tuple[dict[str, TensorInfo], str]:
    """Read and validate the header of a local file.

    Args:
        path: the file.
        name: its path relative to the source's folder, kept in each `TensorInfo`.

    Returns:
        The tensors by name, and the xxh3-128 hex digest of the header.

    Raises:
        InputError: the file is truncated, or its header is not valid.
    """
    file_size = path.stat().st_size
    with path.open("rb") as stream:
        length = header_length(stream.read(8), file_size=file_size, where=str(path))
        raw = stream.read(length)
    tensors = parse_header(raw, file_size=file_size, file=name, where=str(path))
    return tensors, xxhash.xxh3_128_hexdigest(raw)


def header_length(first8: bytes, *, file_size: int, where: str) -> int:
    """The header's length in bytes, from the first 8 bytes of a file of `file_size` bytes."""
    if len(first8) < 8:
        raise _broken(where, "at least 8 bytes", f"a file of {file_size} bytes")
    length = int.from_bytes(first8, "little")
    if length > min(MAX_HEADER, file_size - 8):
        raise _broken(
            where,
            f"a header of at most {min(MAX_HEADER, file_size - 8)} bytes",
            f"a header length of {length}",
        )
    return length


def parse_header(raw: bytes, *, file_size: int, file: str, where: str) -> dict[str, TensorInfo]:
    """Validate a header and place its tensors.

    Args:
        raw: the JSON bytes, without the 8 bytes of length before them.
        file_size: of the whole file, in bytes.
        file: the file's path relative to the source's folder.
        where: the file as named in messages.

    Raises:
        InputError: not JSON, unknown dtype, a shape that does not match its bytes, or data that
            is out of bounds, overlapping or leaves holes.
    """
    data_start = 8 + len(raw)
    data_size = file_size - data_start
    entries = _json_object(raw, where)
    tensors: dict[str, TensorInfo] = {}
    for name, entry in entries.items():
        if name != "__metadata__":
            tensors[name] = _tensor(name, entry, data_start, data_size, file, where)
    end = 0
    for info in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        if info.offset - data_start != end:
            raise _broken(
                where,
                f"tensor {info.name!r} to begin at data byte {end}",
                f"data byte {info.offset - data_start}: tensors overlap or leave a hole",
            )
        end += info.nbytes
    if end != data_size:
        raise _broken(where, f"{data_start + end} bytes in the file", f"{file_size} bytes")
    return tensors


def _json_object(raw: bytes, where: str) -> dict[str, Any]:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _broken(where, "every name once", "a name that stands twice in the header")
        return found

    try:
        entries = json.loads(raw.decode(), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _broken(where, "a header in JSON", str(error)) from None
    if not isinstance(entries, dict):
        raise _broken(where, "a JSON object", type(entries).__name__)
    return entries


def _tensor(
    name: str, entry: Any, data_start: int, data_size: int, file: str, where: str
) -> TensorInfo:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _broken(
            where, "dtype, shape and data_offsets", f"tensor {name!r} without them"
        ) from None
    counts = [begin, end, *shape] if isinstance(shape, list) else [None]
    if any(type(count) is not int or count < 0 for count in counts):
        raise _broken(where, "shape and offsets in whole numbers", f"tensor {name!r}: {entry}")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise _broken(where, "names in UTF-8", f"tensor {name!r} with half a surrogate pair")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _broken(where, f"a dtype of {', '.join(BITS)}", f"tensor {name!r} with {dtype!r}")
    info = TensorInfo(name, dtype, tuple(shape), file, data_start + begin, end - begin)
    if end > data_size or begin > end:
        raise _broken(
            where,
            f"data within {data_size} bytes",
            f"tensor {name!r} at {begin}..{end}: the file is truncated or its header wrong",
        )
    if info.nbytes * 8 != info.numel * BITS[dtype]:
        raise _broken(
            where,
            f"{info.numel * BITS[dtype] // 8} bytes for {dtype} {list(shape)}",
            f"{info.nbytes} bytes for tensor {name!r}",
        )
    return info
