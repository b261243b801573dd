"""Torch checkpoints (``.bin``, ``.ckpt``…): finds the place of each tensor's bytes in the file.

A checkpoint is a zip archive of uncompressed files: a pickle (``data.pkl``) that describes the
tensors, and one file of bytes for each storage. Before torch 1.6, a checkpoint was a sequence of
pickles followed by the bytes of the storages. This module reads only the pickles, the archive's
directory and the headers of its files.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import xxhash

from resumerge.errors import InputError, refuse
from resumerge.sources.formats.restricted_unpickler import Opaque, View, read_pickle
from resumerge.sources.formats.weight_format import (
    Header,
    ReadRange,
    WeightFormat,
    damaged,
    damaged_from_start,
)
from resumerge.tensors import Stored
from resumerge.tensors.dtypes import BITS

FORMAT = "torch checkpoint"
_damaged = partial(damaged, FORMAT)

LARGEST_HEADER = 100_000_000
"""The largest pickle that describes the tensors, in bytes."""

LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first bytes of a checkpoint from before torch 1.6: the pickle of a magic number."""

WRAPPERS = ("state_dict", "model_state_dict", "model", "module")
"""The keys under which trainers save the model's state dict, beside the state of the training."""

DEEPEST = 3
"""The most levels of nested keys of `WRAPPERS`."""

LARGEST = 1 << 62
"""The limit of sizes and offsets, far above those of real files."""


class TorchCheckpoint(WeightFormat):
    """The format of torch.save, in which transformers and peft write a state dict."""

    name = FORMAT
    suffixes = (".bin", ".pt", ".pth", ".ckpt")
    model_file = "pytorch_model.bin"
    adapter_file = "adapter_model.bin"

    def read_header(self, read: ReadRange, *, size: int, file: str, where: str) -> Header:
        first_bytes = read(0, min(size, 64))
        stream = _Stream(read, size, where)
        if first_bytes.startswith(b"PK\x03\x04"):
            content, places, digest = _zip_archive(stream, read, where)
        elif first_bytes.startswith(LEGACY_MAGIC):
            content, places, digest = _legacy_file(stream, read, where)
        else:
            expected_kind = "a torch checkpoint (a zip archive)"
            raise damaged_from_start(
                FORMAT, where, first_bytes, expected_kind, f"a file with {first_bytes[:8]!r}"
            )
        state, left_out = _state_dict(content)
        if state is None:
            raise _damaged(where, "a dictionary of tensors", _kind(content))
        tensors = {}
        for name, value in state.items():
            if not isinstance(value, View):
                left_out.append(f"{_shown(name)} ({_kind(value)})")
            elif isinstance(name, str):
                tensors[name] = _tensor(name, value, places, file, where)
            else:
                raise _damaged(where, "a name for every tensor", f"the number {name}")
        if state and not tensors:
            raise refuse(
                "The torch checkpoint contains no tensors",
                where=where,
                expected=f"tensors by name, or below {', '.join(WRAPPERS)}",
                found=", ".join(left_out)[:300],
                fix="save the model's state dict: torch.save(model.state_dict(), FILE)",
            )
        return Header(tensors, digest, tuple(left_out))


def read_tensor(
    read: ReadRange, *, size: int, file: str, where: str, name: str
) -> tuple[Stored, str]:
    """Return a tensor that torch.save wrote as its only value, and the digest of its description.

    Args:
        read: reads ranges of the bytes that torch.save wrote; offsets in them count from 0.
        size: the number of these bytes.
        file: the file's name in the checkpoint's folder, which the `Stored` gets.
        where: the file's name in messages.
        name: the name that the `Stored` gets; messages show it, too.

    Returns:
        (the tensor, whose offset counts in the bytes that torch.save wrote; the digest).

    Raises:
        InputError: the bytes are truncated or damaged, or do not hold one tensor.
    """
    first_bytes = read(0, min(size, 64))
    if not first_bytes.startswith(b"PK\x03\x04"):
        raise _damaged(where, f"a zip archive for {name[:200]!r}", f"{first_bytes[:8]!r}")
    content, places, digest = _zip_archive(_Stream(read, size, where), read, where)
    if not isinstance(content, View):
        raise _damaged(where, f"the tensor {name[:200]!r}", _kind(content))
    return _tensor(name, content, places, file, where), digest


@dataclass(frozen=True)
class _Place:
    """The place of a storage's bytes in the file. The repr is part of digests: do not rename."""

    start: int
    nbytes: int


class _Stream(io.RawIOBase):
    """A stream of the file that refuses to read more bytes than the largest description needs."""

    def __init__(self, read: ReadRange, size: int, where: str) -> None:
        self._read, self._size, self._where = read, size, where
        self._at = self._total = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if origin + offset < 0:
            raise ValueError("before the start of the file")
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self.take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        return self.take(self._size if size is None or size < 0 else size)

    def take(self, wanted: int) -> bytes:
        stop = min(self._at + wanted, self._size)
        if stop <= self._at:
            return b""
        self._total += stop - self._at
        if self._total > 3 * LARGEST_HEADER:
            raise _damaged(self._where, f"a description of at most {LARGEST_HEADER} bytes", "more")
        piece = self._read(self._at, stop)
        self._at += len(piece)
        return piece


class _Buffered(io.BufferedReader):
    """A stream that allocates at most `LARGEST_HEADER` bytes, even if a pickle asks for more."""

    def read(self, size: int | None = -1, /) -> bytes:
        requested = LARGEST_HEADER if size is None or size < 0 else size
        return super().read(min(requested, LARGEST_HEADER))


def _zip_archive(
    stream: _Stream, read: ReadRange, where: str
) -> tuple[Any, dict[str, _Place], str]:
    try:
        with zipfile.ZipFile(stream) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            pickles = [name for name in entries if name.split("/")[1:] == ["data.pkl"]]
            if len(pickles) != 1:
                raise _damaged(where, "one data.pkl in the archive", f"{len(pickles)}")
            folder = pickles[0].removesuffix("data.pkl")
            for entry in entries.values():
                if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                    raise refuse(
                        "The torch checkpoint is compressed or encrypted, so it cannot be read",
                        where=where,
                        expected="an archive as torch.save writes it",
                        found=f"{entry.filename[:100]!r} in it is compressed or encrypted",
                        fix="load it and save it again with torch, or as safetensors",
                    )
            pickle_bytes = _small_file(archive, entries[pickles[0]], where)
            byte_order = folder + "byteorder"
            if (
                byte_order in entries
                and _small_file(archive, entries[byte_order], where) != b"little"
            ):
                raise _damaged(where, "little-endian numbers", "big-endian numbers")
    except InputError:
        raise
    except (zipfile.BadZipFile, *_ZIP_ERRORS) as error:
        raise _damaged(where, "a complete zip archive", str(error)[:200]) from None
    content = read_pickle(io.BytesIO(pickle_bytes), where).value
    needed_keys = {view.storage.key for view in _views(content)}
    places = {
        name.removeprefix(folder + "data/"): _stored(entry, stream, read, where)
        for name, entry in entries.items()
        if name.removeprefix(folder + "data/") in needed_keys
    }
    description_hash = xxhash.xxh3_128(pickle_bytes)
    description_hash.update(repr(sorted(places.items())).encode())
    return content, places, description_hash.hexdigest()


_ZIP_ERRORS = (
    *(ValueError, EOFError, NotImplementedError, RuntimeError),
    *(OverflowError, IndexError, KeyError, struct.error),
)
"""The errors other than BadZipFile that zipfile raises for malicious archives."""


def _small_file(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> bytes:
    if entry.file_size > LARGEST_HEADER:
        raise _damaged(where, f"at most {LARGEST_HEADER} bytes of data.pkl", f"{entry.file_size}")
    return archive.read(entry)


def _stored(entry: zipfile.ZipInfo, stream: _Stream, read: ReadRange, where: str) -> _Place:
    """Return the place of an uncompressed entry's bytes in a zip archive.

    The bytes follow the entry's local header. Its length is not in the archive's directory.
    """
    size = stream.seek(0, io.SEEK_END)
    header_start = entry.header_offset
    header = read(header_start, header_start + 30) if 0 <= header_start <= size - 30 else b""
    if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
        raise _damaged(
            where, f"an entry at byte {header_start}", "something else: the file is truncated"
        )
    name_length, extra_length = struct.unpack_from("<HH", header, 26)
    start = header_start + 30 + name_length + extra_length
    if start + entry.file_size > size:
        raise _damaged(where, f"{start + entry.file_size} bytes in the file", f"{size} bytes")
    return _Place(start, entry.file_size)


def _legacy_file(
    stream: _Stream, read: ReadRange, where: str
) -> tuple[Any, dict[str, _Place], str]:
    """Read a checkpoint from before torch 1.6.

    The file is a sequence of pickles: magic number, protocol, machine, values, keys. The bytes of
    the storages follow, in the order of the keys.

    Returns:
        (the values, the place of each storage by key, the digest of the bytes before the storages).
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    buffered_stream = _Buffered(stream, 1 << 16)
    _magic, (protocol, _), (machine, _), (content, storages), (keys, _) = (
        read_pickle(buffered_stream, where) for _ in range(5)
    )
    if protocol != 1001 or not isinstance(machine, dict) or not machine.get("little_endian"):
        raise _damaged(where, "little-endian numbers, protocol 1001", "others")
    if not isinstance(keys, list) or not all(isinstance(key, str | int) for key in keys):
        raise _damaged(where, "a list of storages", "something else")
    position = buffered_stream.tell()
    description_hash = xxhash.xxh3_128(read(0, position))
    places: dict[str, _Place] = {}
    for key in map(str, keys):
        count = (
            int.from_bytes(read(position, position + 8), "little") if position + 8 <= size else -1
        )
        dtype = storages[key].dtype if key in storages else None
        nbytes = count * BITS[dtype or "U8"] // 8
        if count < 0 or position + 8 + nbytes > size:
            raise _damaged(where, "all of its storages", f"{size} bytes: the file is truncated")
        places[key] = _Place(position + 8, nbytes)
        position += 8 + nbytes
    return content, places, description_hash.hexdigest()


def _views(values: Any) -> list[View]:
    """Return the tensors of the state dict in a checkpoint, which may also be a single tensor."""
    if isinstance(values, View):
        return [values]
    state, _ = _state_dict(values)
    return [value for value in (state or {}).values() if type(value) is View]


def _state_dict(values: Any) -> tuple[dict[Any, Any] | None, list[str]]:
    """Return the state dict in a checkpoint, and the checkpoint's other content in words.

    The state dict is None if the checkpoint is not a dictionary.
    """
    if not isinstance(values, dict):
        return None, []
    left_out: list[str] = []
    for _ in range(DEEPEST):
        wrapper_key = next((key for key in WRAPPERS if isinstance(values.get(key), dict)), None)
        if wrapper_key is None:
            break
        left_out += [f"{_shown(k)} ({_kind(v)})" for k, v in values.items() if k != wrapper_key]
        values = values[wrapper_key]
    return values, left_out


def _shown(name: Any) -> str:
    return str(name)[:100]


def _kind(value: Any) -> str:
    """Return the type of a value in a checkpoint, for messages."""
    if isinstance(value, Opaque):
        return str(value)
    return "tensor" if isinstance(value, View) else type(value).__name__


def _tensor(name: str, view: View, extents: Mapping[str, _Place], file: str, where: str) -> Stored:
    """Return the stored tensor that a view describes, after checking it against its storage."""

    def broken(expected: str, found: str) -> InputError:
        return _damaged(where, expected, f"tensor {name[:200]!r}: {found}")

    shape, strides, offset = view.shape, view.strides, view.offset
    if not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise broken("a shape and strides", "no shape, or no strides")
    numbers = (offset, view.storage.size, *shape, *strides)
    if any(type(n) is not int or not 0 <= n < LARGEST for n in numbers):
        raise broken("a shape, strides and an offset in whole numbers", "other values")
    if len(shape) != len(strides) or len(shape) > 64:
        raise broken("as many strides as dimensions", f"{len(shape)} and {len(strides)}")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise broken("names in UTF-8", "half a surrogate pair")
    storage_place = extents.get(view.storage.key)
    if storage_place is None:
        raise broken(f"the storage {view.storage.key[:60]!r} in the file", "it is missing")
    element_bytes = BITS[view.dtype] // 8
    numel = 1
    for count in shape:
        numel *= count
    if numel * element_bytes >= LARGEST:
        raise broken("a tensor that memory can address", f"shape {list(shape)}")
    last_element = (
        offset + sum((n - 1) * stride for n, stride in zip(shape, strides)) if numel else -1
    )
    if (last_element + 1) * element_bytes > storage_place.nbytes:
        raise broken(
            f"data within {storage_place.nbytes} bytes",
            f"element {last_element} of {element_bytes} bytes",
        )
    is_contiguous = numel == 0 or strides_in_order(shape, strides)
    start = storage_place.start + offset * element_bytes
    return Stored(name, view.dtype, shape, file, start, None if is_contiguous else strides)


def strides_in_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a tensor with these strides (in elements) is contiguous in row-major order."""
    expected_stride = 1
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count != 1 and stride != expected_stride:
            return False
        expected_stride *= count
    return True
