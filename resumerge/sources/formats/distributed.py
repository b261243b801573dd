"""Distributed checkpoints (torch.distributed.checkpoint): finds the place of each tensor's chunks.

A checkpoint is a folder with the files of the processes that wrote it (``__0_0.distcp``…), and
``.metadata``, the pickle of a ``torch.distributed.checkpoint.metadata.Metadata``. The metadata has
the dtype, shape and chunks of each tensor, and the file and byte range of each chunk. Each chunk
was written by torch.save.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import xxhash

from resumerge.errors import InputError, refuse
from resumerge.foreign_files import has_odd_part
from resumerge.sizes import counted, some
from resumerge.sources.formats.restricted_unpickler import DTYPES, Record, read_pickle
from resumerge.sources.formats.torch_checkpoint import LARGEST, WRAPPERS, read_tensor
from resumerge.sources.formats.weight_format import Header, ReadRange, WeightFormat, damaged
from resumerge.tensors import Stored, Tensor, Tiled

METADATA = ".metadata"
"""The name of the file that describes a checkpoint's folder."""

LARGEST_METADATA = 256 << 20
"""The largest metadata file, in bytes. The metadata of a million chunks is half as large."""

FORMAT = "distributed checkpoint"

_WHAT = f"metadata of the {FORMAT}"
_METADATA = "torch.distributed.checkpoint.metadata"
_RECORDS = frozenset(
    {
        *(
            (_METADATA, name)
            for name in (
                *("Metadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
                *("TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata"),
                "TensorProperties",
            )
        ),
        ("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"),
        ("torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    }
)
"""The classes of torch in the metadata, also of older versions, by module and name."""

_APPLICATION = "app"
"""The key under which torch's tutorial saves model and optimizer."""


class Chunk(NamedTuple):
    """A box of a tensor's elements, and the place of the bytes that torch.save wrote for it.

    Args:
        name: the chunk's name: the tensor's name, and the index of the chunk's first element.
        offsets: the index of the chunk's first element in the tensor.
        shape: the number of elements in each dimension.
        dtype: safetensors' name of the elements' type.
        file: the name of the file with the bytes.
        start: the offset of the first byte in the file.
        nbytes: the number of bytes, which include torch.save's archive around the elements.
    """

    name: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    file: str
    start: int
    nbytes: int


@dataclass(frozen=True)
class Saved:
    """A tensor of the model, as the chunks that it consists of. They form a grid without gaps."""

    shape: tuple[int, ...]
    chunks: Sequence[Chunk]


@dataclass(frozen=True)
class Distributed(WeightFormat):
    """The format of the files in one checkpoint's folder. It is not in `FORMATS`.

    Args:
        tensors: the tensors of the model, by name.
        left_out: the other entries of the metadata, in words.
        digest: the xxh3-128 hex digest of the metadata file.
    """

    name = FORMAT
    suffixes = (".distcp",)

    tensors: Mapping[str, Saved]
    left_out: tuple[str, ...]
    digest: str

    @property
    def files(self) -> list[str]:
        """The names of the files with chunks of the model, sorted."""
        return sorted({chunk.file for saved in self.tensors.values() for chunk in saved.chunks})

    def read_header(self, read: ReadRange, *, size: int, file: str, where: str) -> Header:
        combined_hash = xxhash.xxh3_128(self.digest.encode())
        chunks: dict[str, Stored] = {}
        for saved_tensor in self.tensors.values():
            for chunk in saved_tensor.chunks:
                if chunk.file == file:
                    chunks[chunk.name], digest = self._stored(chunk, read, size, where)
                    combined_hash.update(digest.encode())
        return Header(chunks, combined_hash.hexdigest())

    def joined(self, chunks: Mapping[str, Stored]) -> dict[str, Tensor]:
        """Return the tensors of the model, by name.

        Args:
            chunks: the chunks of all files, by the chunks' names.
        """
        return {
            name: _joined(name, saved_tensor, chunks) for name, saved_tensor in self.tensors.items()
        }

    def _stored(self, chunk: Chunk, read: ReadRange, size: int, where: str) -> tuple[Stored, str]:
        start, stop = chunk.start, chunk.start + chunk.nbytes
        if stop > size:
            raise self.damaged(where, f"{stop} bytes, for {chunk.name[:200]!r}", f"{size} bytes")

        def part(first: int, last: int) -> bytes:
            return read(start + first, min(start + last, stop))

        chunk_tensor, digest = read_tensor(
            part, size=chunk.nbytes, file=chunk.file, where=where, name=chunk.name
        )
        if (chunk_tensor.dtype, chunk_tensor.shape) != (chunk.dtype, chunk.shape):
            raise self.damaged(
                where,
                f"{chunk.dtype} {list(chunk.shape)} for {chunk.name[:200]!r}, as {METADATA} says",
                f"{chunk_tensor.dtype} {list(chunk_tensor.shape)}",
            )
        return replace(chunk_tensor, offset=start + chunk_tensor.offset), digest


def read_metadata(raw: bytes, where: str) -> Distributed:
    """Return the model that the metadata of a checkpoint describes.

    The model is the state dict under keys of `WRAPPERS`, with or without ``app`` before them. If
    there is no such state dict, the model consists of the tensors at the top level. A tensor's name
    is its key in the state dict. Other entries, such as the optimizer's state, are left out.

    Args:
        raw: the content of ``.metadata``.
        where: the file's name in messages.

    Raises:
        InputError: the metadata is truncated or damaged, or names classes that no checkpoint needs;
            the chunks of a tensor overlap or do not cover it; or there is no model.
    """
    content = read_pickle(io.BytesIO(raw), where, _RECORDS, _WHAT).value
    try:
        entries, places, paths = _content(content)
        keys_by_name, left_out = _of_model(entries, paths, where)
        tensors = {}
        for name, key in keys_by_name.items():
            entry = entries[key].state
            shape = _whole_numbers(entry["size"])
            chunks = _chunks(name, key, entry, places, where)
            _check_cover(name, shape, chunks, where)
            tensors[name] = Saved(shape, chunks)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unfit(where, "the places of tensors", f"{type(error).__name__}: {error}") from None
    return Distributed(tensors, left_out, xxhash.xxh3_128_hexdigest(raw))


def _joined(name: str, saved: Saved, stored: Mapping[str, Stored]) -> Tensor:
    """Return a tensor as the combination of its chunks. All leaves have the tensor's name."""
    tiles = [replace(stored[chunk.name], name=name) for chunk in saved.chunks]
    if len(tiles) == 1:
        return tiles[0]
    offsets = tuple(chunk.offsets for chunk in saved.chunks)
    return Tiled.of(name, saved.shape, tuple(tiles), offsets)


_Places = Mapping[tuple[str, tuple[int, ...]], Mapping[str, Any]]
"""The place of each chunk, by the tensor's key and the index of the chunk's first element."""


def _content(content: Any) -> tuple[dict[str, Record], _Places, Mapping[str, tuple[str, ...]]]:
    """Return the entries of the metadata, the places of chunks, and the key path of each entry."""
    state = _state(content, "Metadata")
    entries = state["state_dict_metadata"]
    if not isinstance(entries, dict) or not all(type(key) is str for key in entries):
        raise TypeError("entries without names")
    places = {}
    for index, place in (state.get("storage_data") or {}).items():
        chunk_index = _state(index, "MetadataIndex")
        if chunk_index.get("offset") is not None:
            places[chunk_index["fqn"], _whole_numbers(chunk_index["offset"])] = _state(
                place, "_StorageInfo"
            )
    planned_paths = state.get("planner_data")
    paths: dict[str, tuple[str, ...]] = {key: (key,) for key in entries}
    for key, path in (planned_paths if isinstance(planned_paths, dict) else {}).items():
        if key in paths and isinstance(path, tuple) and path:
            paths[key] = tuple(map(str, path))
    return entries, places, paths


def _state(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Record) or value.name != name or not isinstance(value.state, dict):
        raise TypeError(f"no {name}")
    return value.state


def _of_model(
    entries: Mapping[str, Record], paths: Mapping[str, tuple[str, ...]], where: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the key of each of the model's tensors by its name, and the other entries in words.

    Args:
        entries: the entries of the metadata, by key.
        paths: the keys that lead to each entry, by its key.
        where: the file's name in messages.

    Raises:
        InputError: there is no model, or more than one.
    """
    tensor_keys = [key for key, entry in entries.items() if entry.name == "TensorStorageMetadata"]
    prefix_counts = Counter(_home(paths[key]) for key in tensor_keys)
    model_prefixes = [model_prefix for model_prefix in prefix_counts if model_prefix]
    if len(model_prefixes) > 1:
        raise refuse(
            f"The {FORMAT} has several models",
            where=where,
            expected=f"one state dict below {', '.join(WRAPPERS)}",
            found=", ".join(".".join(model_prefix) for model_prefix in model_prefixes),
            fix="save the one that is to be merged into a folder of its own",
        )
    model_prefix = model_prefixes[0] if model_prefixes else ()
    keys_by_name, other_content = dict[str, str](), Counter[str]()
    for key in entries:
        path = paths[key]
        path_in_model = (
            path[len(model_prefix) :] if path[: len(model_prefix)] == model_prefix else ()
        )
        if key in tensor_keys and (path_in_model if model_prefix else len(path) == 1):
            name = ".".join(path_in_model)
            if name in keys_by_name:
                raise _unfit(where, "each tensor once", f"{name[:200]!r} twice")
            keys_by_name[name] = key
        else:
            other_content[
                ".".join(
                    path if model_prefix and path_in_model else path[: max(1, len(model_prefix))]
                )
            ] += 1
    left_out = tuple(f"{key[:100]} ({counted(n, 'value')})" for key, n in other_content.items())
    if not keys_by_name:
        raise refuse(
            f"The {FORMAT} has no model",
            where=where,
            expected=f"tensors of a state dict below {', '.join(WRAPPERS)}, or at the top",
            found=some(sorted(left_out)) or "nothing",
            fix="save the model's state dict: dcp.save({'model': model.state_dict()}, …)",
        )
    return keys_by_name, left_out


def _home(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys at the start of a path that lead to the model's state dict; may be empty."""
    depth = int(path[0] == _APPLICATION)
    while depth < len(path) - 1 and path[depth] in WRAPPERS:
        depth += 1
    return path[:depth] if depth > int(path[0] == _APPLICATION) else ()


def _chunks(
    name: str, key: str, entry: Mapping[str, Any], places: _Places, where: str
) -> list[Chunk]:
    """Return the chunks of a tensor that have elements; if all are empty, return one of them.

    Args:
        name: the tensor's name in the model.
        key: the tensor's key in the metadata.
        entry: the tensor's description in the metadata.
        places: the places of all chunks.
        where: the file's name in messages.

    Raises:
        InputError: a chunk has no place, is in a file outside the folder, or is compressed or
            encrypted.
    """
    dtype = entry["properties"].state[0]
    if dtype not in DTYPES.values():
        raise TypeError(f"no dtype of {name[:200]!r}")
    chunks = []
    for record in entry["chunks"]:
        state = _state(record, "ChunkStorageMetadata")
        offsets, shape = _whole_numbers(state["offsets"]), _whole_numbers(state["sizes"])
        if (key, offsets) not in places:
            raise _unfit(where, "a place for every chunk", f"none for {name[:200]!r} {offsets}")
        place = places[key, offsets]
        file, start, nbytes = place["relative_path"], place["offset"], place["length"]
        if not isinstance(file, str) or "/" in file or has_odd_part(file):
            raise refuse(
                "The metadata names a file outside the checkpoint's folder",
                where=where,
                expected="a file name such as __0_0.distcp",
                found=f"{str(file)[:200]!r} for {name[:200]!r}",
                fix="do not use this checkpoint: it is broken or malicious",
            )
        if place.get("transform_descriptors"):
            raise refuse(
                f"The {FORMAT} is compressed or encrypted, so it cannot be read",
                where=where,
                expected="chunks as torch.save writes them",
                found=f"{name[:100]!r}: {str(place['transform_descriptors'])[:100]}",
                fix="save it without extensions",
            )
        _whole_numbers((start, nbytes))
        label = f"{name}[{','.join(map(str, offsets))}]"
        chunks.append(Chunk(label, offsets, shape, dtype, file, start, nbytes))
    return [chunk for chunk in chunks if math.prod(chunk.shape)] or chunks[:1]


def _check_cover(name: str, shape: tuple[int, ...], chunks: Sequence[Chunk], where: str) -> None:
    """Check that the chunks of a tensor are the cells of a grid that covers the whole tensor.

    Raises:
        InputError: chunks are missing, overlap, or extend beyond the tensor.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise _unfit(where, "names in UTF-8", "half a surrogate pair")
    expected_chunks = f"chunks that cover {name[:200]!r} {list(shape)}, each element once"
    if any(len(chunk.shape) != len(shape) or len(chunk.offsets) != len(shape) for chunk in chunks):
        raise _unfit(where, expected_chunks, "chunks of other dimensions")
    cell_count = 1
    cell_ends: list[dict[int, int]] = []
    for axis, length in enumerate(shape):
        cell_starts = sorted({chunk.offsets[axis] for chunk in chunks})
        cell_ends.append(dict(pairwise([*cell_starts, length])))
        cell_count *= len(cell_starts)
    for chunk in chunks:
        for offset, length, end in zip(chunk.offsets, chunk.shape, cell_ends):
            if offset + length != end[offset]:
                chunk_end = [a + b for a, b in zip(chunk.offsets, chunk.shape)]
                chunk_range = f"{list(chunk.offsets)} to {chunk_end}: a gap, or an overlap"
                raise _unfit(where, expected_chunks, chunk_range)
    starts_at_zero = all(min(end, default=0) == 0 for end in cell_ends)
    if (
        not chunks
        or not starts_at_zero
        or len(chunks) != cell_count
        or len({c.offsets for c in chunks}) != cell_count
    ):
        raise _unfit(where, expected_chunks, f"{len(chunks)} chunks with gaps, or twice the same")


def _whole_numbers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple) or len(values) > 64:
        raise TypeError("no sizes")
    if any(type(value) is not int or not 0 <= value < LARGEST for value in values):
        raise ValueError("sizes that are no whole numbers")
    return values


def _unfit(where: str, expected: str, found: str) -> InputError:
    return damaged(_WHAT, where, expected, found[:300])
