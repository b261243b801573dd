"""Packing the output tensors into shards, with every header and offset known in advance."""

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
"""A model of one part."""


def parts_of(reference: Source, stem: str) -> Mapping[str, str]:
    """Return for each part of the output, by the prefix of its tensors, the stem of its files.

    The parts are the components of a pipeline, or a model and its modules of sentence-transformers.

    Args:
        reference: the reference model.
        stem: the stem of the files of a model of one part.
    """
    parts = {f"{name}/": own for name, own in reference.components.items() if own}
    modules = reference.modules.stems if reference.modules else {}
    return parts or {"": stem, **{f"{name}/": own for name, own in modules.items()}}


def pack(
    targets: Sequence[Target], shard_size: int, parts: Mapping[str, str] = MODEL
) -> tuple[tuple[Unit, ...], tuple[Shard, ...]]:
    """Fill shards in the order of the targets, part by part.

    A shard is closed when the next tensor would make its data larger than `shard_size` bytes. A
    tensor that is larger than that has a shard of its own. Within a shard, wider dtypes come first,
    so that every tensor is aligned to its element size.

    Args:
        targets: the output tensors.
        shard_size: largest shard in bytes.
        parts: the stem of each part's files, by the prefix of its tensors, which is also its
            folder. In the files the tensors are named without the prefix.
    """
    units: list[Unit] = []
    shards: list[Shard] = []
    for prefix, stem in parts.items():
        others = tuple(other for other in parts if len(other) > len(prefix))
        of_part = [
            target
            for target in targets
            if target.name.startswith(prefix) and not target.name.startswith(others)
        ]
        _pack_part(of_part, shard_size, prefix, stem, units, shards)
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
    groups: list[list[list[Target]]] = []  # each group has whole tensors
    filled = 0
    for whole in whole_tensors(targets):
        size = sum(target.nbytes for target in whole)
        if not groups or filled + size > shard_size:
            groups.append([])
            filled = 0
        groups[-1].append(whole)
        filled += size
    for index, tensors in enumerate(groups):
        name = prefix + shard_name(index, len(groups), stem)
        add_packed(name, tensors, units, shards, prefix)


def add_packed(
    name: str,
    tensors: list[list[Target]],
    units: list[Unit],
    shards: list[Shard],
    prefix: str = "",
) -> None:
    """Append a shard with its units, wider dtypes first.

    Args:
        name: the shard's name.
        tensors: the targets, grouped by tensor.
        units: the units so far.
        shards: the shards so far.
        prefix: the prefix of the targets' names, which the names in the file do not have.
    """
    tensors.sort(key=lambda whole: -whole[0].alignment)
    group = [target for whole in tensors for target in whole]
    add_shard(name, _header(group, prefix), group, units, shards)


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
        name: the shard's name.
        header: the file's first bytes, which say where the targets are.
        targets: the targets, in their order in the file.
        units: the units so far.
        shards: the shards so far.
        copied: the weight file that the shard is a copy of; None if it is none.
    """
    first, offset, number = len(units), len(header), len(shards)
    for target in targets:
        units.append(
            Unit(
                number=len(units),
                name=target.name,
                dtype=target.dtype,
                shape=target.shape,
                shard=number,
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
            number=number,
            name=name,
            header=header,
            nbytes=offset,
            first=first,
            last=len(units),
            copied=copied,
        )
    )


def whole_tensors(targets: Sequence[Target]) -> Iterator[list[Target]]:
    """Yield the targets of each tensor together; they have one dtype."""
    whole: list[Target] = []
    for target in targets:
        if whole and not target.continues_tensor:
            yield whole
            whole = []
        whole.append(target)
    if whole:
        yield whole


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
    names, size = sum(len(target.tensors) for target in group), sum(t.nbytes for t in group)
    assert (len(entries) - 1, end) == (names, size), "a file that nobody can open"
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
