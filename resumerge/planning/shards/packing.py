"""Packs the output's tensors into shards. Every header and offset is known in advance."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from resumerge.output_path import STEM, shard_name
from resumerge.planning.plan import Shard, SourceFileKey, Unit
from resumerge.sources.types import Source
from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.target import Target

MODEL: Mapping[str, str] = {"": STEM}
"""The parts of an ordinary model: a single part, whose tensors have no prefix."""


def parts_of(reference: Source, stem: str) -> Mapping[str, str]:
    """Return the stem of the weight files of each part, by the prefix of the part's tensors.

    The parts are the components of a pipeline, or a model and its modules of sentence-transformers.

    Args:
        reference: the model whose components or modules the output has.
        stem: the stem of the files of a model that is not a pipeline.
    """
    component_stems = {
        f"{name}/": part_stem for name, part_stem in reference.components.items() if part_stem
    }
    module_stems = reference.modules.stems if reference.modules else {}
    return component_stems or {
        "": stem,
        **{f"{name}/": part_stem for name, part_stem in module_stems.items()},
    }


def pack(
    targets: Sequence[Target], shard_size: int, parts: Mapping[str, str] = MODEL
) -> tuple[tuple[Unit, ...], tuple[Shard, ...]]:
    """Fill shards in the order of the targets, part by part.

    A shard is closed when the next tensor would make its data larger than `shard_size` bytes. A
    single tensor that is larger gets its own shard. Within a shard, wider dtypes come first, so
    that every tensor is aligned to its element size.

    Args:
        targets: the output tensors. The targets of one tensor follow each other.
        shard_size: the most bytes of tensors in a shard, unless a single tensor is larger.
        parts: the stem of each part's files, by the prefix of the part's tensors. The prefix is
            also the part's folder, and is not in the tensors' names in the files.
    """
    units: list[Unit] = []
    shards: list[Shard] = []
    for prefix, stem in parts.items():
        longer_prefixes = tuple(
            other_prefix for other_prefix in parts if len(other_prefix) > len(prefix)
        )
        targets_of_part = [
            target
            for target in targets
            if target.name.startswith(prefix) and not target.name.startswith(longer_prefixes)
        ]
        _pack_part(targets_of_part, shard_size, prefix, stem, units, shards)
    return tuple(units), tuple(shards)


def _pack_part(
    targets: Sequence[Target],
    shard_size: int,
    prefix: str,
    stem: str,
    units: list[Unit],
    shards: list[Shard],
) -> None:
    """Append the units and shards of one part."""
    targets_by_shard: list[list[list[Target]]] = []  # the targets of each shard, grouped by tensor
    filled_bytes = 0
    for targets_of_tensor in whole_tensors(targets):
        tensor_bytes = sum(target.nbytes for target in targets_of_tensor)
        if not targets_by_shard or filled_bytes + tensor_bytes > shard_size:
            targets_by_shard.append([])
            filled_bytes = 0
        targets_by_shard[-1].append(targets_of_tensor)
        filled_bytes += tensor_bytes
    for index, tensors_of_shard in enumerate(targets_by_shard):
        name = prefix + shard_name(index, len(targets_by_shard), stem)
        add_packed(name, tensors_of_shard, units, shards, prefix)


def add_packed(
    name: str,
    tensors: list[list[Target]],
    units: list[Unit],
    shards: list[Shard],
    prefix: str = "",
) -> None:
    """Append a shard with its units, wider dtypes first.

    Args:
        name: the shard's path in the output, with the folder of its part.
        tensors: the targets, grouped by tensor. The list is sorted in place.
        units: the units so far; the new units are appended.
        shards: the shards so far; the new shard is appended.
        prefix: the prefix of the targets' names that is left out in the file.
    """
    tensors.sort(key=lambda whole: -whole[0].alignment)
    targets_of_shard = [target for targets_of_tensor in tensors for target in targets_of_tensor]
    add_shard(name, _header(targets_of_shard, prefix), targets_of_shard, units, shards)


def add_shard(
    name: str,
    header: bytes,
    targets: Sequence[Target],
    units: list[Unit],
    shards: list[Shard],
    copied: SourceFileKey | None = None,
) -> None:
    """Append a shard with its units.

    Args:
        name: the shard's path in the output, with the folder of its part.
        header: the file's first bytes, which hold the offsets of the targets.
        targets: the targets, in their order in the file.
        units: the units so far; the new units are appended.
        shards: the shards so far; the new shard is appended.
        copied: the weight file whose copy the shard is; None if the shard is not a copy.
    """
    first_unit, offset, shard_number = len(units), len(header), len(shards)
    for target in targets:
        units.append(
            Unit(
                number=len(units),
                name=target.name,
                dtype=target.dtype,
                shape=target.shape,
                shard=shard_number,
                offset=offset,
                nbytes=target.nbytes,
                block_elements=target.block_elements,
                expression=target.expression,
                tensors=target.tensors,
                dtypes=target.dtypes,
            )
        )
        offset += target.nbytes
    shards.append(
        Shard(
            number=shard_number,
            name=name,
            header=header,
            nbytes=offset,
            first=first_unit,
            last=len(units),
            copied=copied,
        )
    )


def whole_tensors(targets: Sequence[Target]) -> Iterator[list[Target]]:
    """Yield the list of each tensor's targets. All targets of a tensor have the same dtype."""
    targets_of_tensor: list[Target] = []
    for target in targets:
        if targets_of_tensor and not target.continues_tensor:
            yield targets_of_tensor
            targets_of_tensor = []
        targets_of_tensor.append(target)
    if targets_of_tensor:
        yield targets_of_tensor


def _header(group: Sequence[Target], prefix: str) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for target in group:
        for name, shape in target.tensors.items():
            dtype = target.dtypes.get(name, target.dtype)
            begin, end = end, end + nbytes(dtype, math.prod(shape))
            entries[name.removeprefix(prefix)] = {
                "dtype": dtype,
                "shape": list(shape),
                "data_offsets": [begin, end],
            }
    name_count = sum(len(target.tensors) for target in group)
    size = sum(t.nbytes for t in group)
    assert (len(entries) - 1, end) == (name_count, size), "a file that nobody can open"
    header_json = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header_json += b" " * (-len(header_json) % 8)
    return len(header_json).to_bytes(8, "little") + header_json
