"""The safetensors format. The header is validated before anything in the file is used.

The format (https://github.com/huggingface/safetensors): 8 bytes with the little-endian length of
the header, the header in JSON, then the data. The ``data_offsets`` of each tensor count from the
start of the data, which has neither gaps nor overlaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from resumerge.sources.formats.weight_format import (
    Header,
    ReadRange,
    WeightFormat,
    damaged,
    damaged_from_start,
)
from resumerge.sources.json_object import check_value_count
from resumerge.tensors import Stored
from resumerge.tensors.dtypes import BITS

FORMAT = "safetensors file"

METADATA = "__metadata__"
"""The key in a header for the texts of the file's writer. All other keys name tensors."""

LARGEST_HEADER = 100_000_000
"""The largest header, in bytes; the limit of the reference implementation."""


class Safetensors(WeightFormat):
    """The format of the safetensors library."""

    name = FORMAT
    suffixes = (".safetensors",)
    model_file = "model.safetensors"
    adapter_file = "adapter_model.safetensors"
    header_first = True

    def read_header(self, read: ReadRange, *, size: int, file: str, where: str) -> Header:
        first8 = read(0, 8)
        length = _header_length(first8, file_size=size, where=where)
        header_bytes = read(8, 8 + length)
        entries = _json_object(header_bytes, where)
        tensors = _tensors(entries, len(header_bytes), file_size=size, file=file, where=where)
        texts = entries.get(METADATA)
        texts = texts.items() if isinstance(texts, dict) else ()
        metadata = {key: text for key, text in texts if isinstance(text, str)}
        digest = xxhash.xxh3_128_hexdigest(header_bytes)
        return Header(tensors, digest, metadata=metadata, first=first8 + header_bytes)


def _header_length(first8: bytes, *, file_size: int, where: str) -> int:
    """Return the header's length in bytes, without the 8 bytes before it.

    Args:
        first8: the first 8 bytes of the file.
        file_size: the size of the whole file, in bytes.
        where: the file's name in messages.

    Raises:
        InputError: the file is shorter than its header, or the header is too long.
    """
    if len(first8) < 8:
        raise damaged(FORMAT, where, "at least 8 bytes", f"a file of {file_size} bytes")
    length = int.from_bytes(first8, "little")
    if length > min(LARGEST_HEADER, file_size - 8):
        raise damaged_from_start(
            FORMAT,
            where,
            first8,
            f"a header of at most {min(LARGEST_HEADER, file_size - 8)} bytes",
            f"a header length of {length}",
        )
    return length


def _tensors(
    entries: Mapping[str, Any], length: int, *, file_size: int, file: str, where: str
) -> dict[str, Stored]:
    """Return the place of each tensor, after validating the header.

    Args:
        entries: the header's JSON.
        length: the header's length in bytes, without the 8 bytes before it.
        file_size: the size of the whole file, in bytes.
        file: the file's path relative to the source's folder.
        where: the file's name in messages.

    Raises:
        InputError: a dtype is unknown, a shape does not match the number of bytes, or the data is
            out of bounds, overlaps or leaves holes.
    """
    data_start = 8 + length
    data_size = file_size - data_start
    tensors: dict[str, Stored] = {}
    for name, entry in entries.items():
        if name != METADATA:
            tensors[name] = _tensor(name, entry, data_start, data_size, file, where)
    end = 0
    for stored_tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        if stored_tensor.offset - data_start != end:
            raise damaged(
                FORMAT,
                where,
                f"tensor {stored_tensor.name!r} to begin at data byte {end}",
                f"data byte {stored_tensor.offset - data_start}: tensors overlap or leave a hole",
            )
        end += stored_tensor.nbytes
    if end != data_size:
        raise damaged(FORMAT, where, f"{data_start + end} bytes in the file", f"{file_size} bytes")
    return tensors


def _json_object(raw: bytes, where: str) -> dict[str, Any]:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries_by_name = dict(pairs)
        if len(entries_by_name) != len(pairs):
            raise damaged(FORMAT, where, "each name once", "the same name twice in the header")
        return entries_by_name

    try:
        check_value_count(raw)
        entries = json.loads(raw.decode(), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise damaged(FORMAT, where, "a header in JSON", str(error)) from None
    if not isinstance(entries, dict):
        raise damaged(FORMAT, where, "a JSON object", type(entries).__name__)
    return entries


def _tensor(
    name: str, entry: Any, data_start: int, data_size: int, file: str, where: str
) -> Stored:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise damaged(
            FORMAT, where, "dtype, shape and data_offsets", f"tensor {name!r} without some of these"
        ) from None
    whole_numbers = [begin, end, *shape] if isinstance(shape, list) else [None]
    if any(type(count) is not int or count < 0 for count in whole_numbers):
        raise damaged(
            FORMAT, where, "shape and offsets in whole numbers", f"tensor {name!r}: {entry}"
        )
    if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        raise damaged(
            FORMAT, where, "names in UTF-8", f"tensor {name!r} with half a surrogate pair"
        )
    if not isinstance(dtype, str) or dtype not in BITS:
        raise damaged(
            FORMAT, where, f"a dtype of {', '.join(BITS)}", f"tensor {name!r} with {dtype!r}"
        )
    stored_tensor = Stored(name, dtype, tuple(shape), file, data_start + begin)
    if end > data_size or begin > end:
        raise damaged(
            FORMAT,
            where,
            f"data within {data_size} bytes",
            f"tensor {name!r} at {begin}..{end}: the file is truncated, or its header is wrong",
        )
    if (end - begin) * 8 != stored_tensor.numel * BITS[dtype]:
        raise damaged(
            FORMAT,
            where,
            f"{stored_tensor.numel * BITS[dtype] // 8} bytes for {dtype} {list(shape)}",
            f"{end - begin} bytes for tensor {name!r}",
        )
    return stored_tensor
