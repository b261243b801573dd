"""Packing the output tensors into shards, with every header and offset known in advance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resumerge.planning.plan import Shard, Unit
from resumerge.tensors import Tensor
from resumerge.tensors.dtypes import BITS, nbytes


@dataclass(frozen=True)
class Target:
    """A `Unit` that has no place yet."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    block_elements: int
    expression: Tensor
    tensors: Mapping[str, tuple[int, ...]]

    @property
    def nbytes(self) -> int:
        return nbytes(self.dtype, math.prod(self.shape))


def pack(targets: Sequence[Target], shard_size: int) -> tuple[tuple[Unit, ...], tuple[Shard, ...]]:
    """Fill shards in the order of the targets.

    A shard is closed when the next tensor would make its data larger than `shard_size` bytes; a
    larger tensor has a shard of its own. Within a shard, wider dtypes come first, so that every
    tensor is aligned to its element size.
    """
    groups: list[list[Target]] = []
    filled = 0
    for target in targets:
        if not groups or filled + target.nbytes > shard_size:
            groups.append([])
            filled = 0
        groups[-1].append(target)
        filled += target.nbytes
    units: list[Unit] = []
    shards: list[Shard] = []
    for number, group in enumerate(groups):
        group.sort(key=lambda target: -BITS[target.dtype])
        header = _header(group)
        first, offset = len(units), len(header)
        for target in group:
            units.append(
                Unit(
                    len(units),
                    target.name,
                    target.dtype,
                    target.shape,
                    number,
                    offset,
                    target.nbytes,
                    target.block_elements,
                    target.expression,
                    target.tensors,
                )
            )
            offset += target.nbytes
        name = shard_name(number, len(groups))
        shards.append(Shard(number, name, header, offset, first, len(units)))
    return tuple(units), tuple(shards)


def shard_name(number: int, count: int) -> str:
    """The name that transformers looks for."""
    if count == 1:
        return "model.safetensors"
    return f"model-{number + 1:05d}-of-{count:05d}.safetensors"


def _header(group: Sequence[Target]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for target in group:
        for name, shape in target.tensors.items():
            begin, end = end, end + nbytes(target.dtype, math.prod(shape))
            entries[name] = {
                "dtype": target.dtype,
                "shape": list(shape),
                "data_offsets": [begin, end],
            }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
