"""A tensor stored as tiles: boxes of its elements, each saved by one of the training processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.stored.strided import Box, boxes
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True)
class Tiled(Tensor):
    """A tensor that tiles cover without gaps or overlaps.

    Args:
        tiles: the tiles, with the tensor's dtype and number of dimensions.
        offsets: the index of each tile's first element.
    """

    tiles: tuple[Tensor, ...]
    offsets: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls,
        name: str,
        shape: tuple[int, ...],
        tiles: tuple[Tensor, ...],
        offsets: tuple[tuple[int, ...], ...],
    ) -> Tiled:
        """Return tiles as the tensor that they cover."""
        assert math.prod(shape) == sum(tile.numel for tile in tiles)
        return cls(name, tiles[0].dtype, shape, tiles, offsets)

    def children(self) -> tuple[Tensor, ...]:
        return self.tiles

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        return Tiled(self.name, self.dtype, self.shape, children, self.offsets)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for _, tile, _, tile_start, tile_end in self._pieces(start, stop):
            yield from tile.no_longer_read(tile_start, tile_end)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for _, tile, _, tile_start, tile_end in self._pieces(start, stop):
            yield from tile.reads(tile_start, tile_end)

    def working_bytes(self, elements: int) -> float:
        tile_buffer = elements * (BITS[self.dtype] // 8)
        return tile_buffer + super().working_bytes(elements)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        inner_evaluation, width, box_offset = evaluation.inner(), BITS[self.dtype] // 8, 0
        previous_box: Box | None = None
        for box, tile, overlap, tile_start, tile_end in self._pieces(start, stop):
            if box is not previous_box:
                box_offset += width * _numel(previous_box) if previous_box is not None else 0
                previous_box = box
            size = width * (tile_end - tile_start)
            if tile_end - tile_start == _numel(box):
                tile.read(
                    inner_evaluation, tile_start, tile_end, out[box_offset : box_offset + size]
                )
                continue
            counts = tuple(end - begin for begin, end in box)
            tile_bytes = evaluation.take("tile", size)
            tile.read(inner_evaluation, tile_start, tile_end, tile_bytes)
            target = (
                out[box_offset : box_offset + width * _numel(box)].view(f"u{width}").reshape(counts)
            )
            place = tuple(
                slice(begin - origin, end - origin)
                for (begin, end), (origin, _) in zip(overlap, box)
            )
            target[place] = tile_bytes.view(f"u{width}").reshape(target[place].shape)

    def as_json(self) -> dict[str, Any]:
        return {
            "tiles": [tile.as_json() for tile in self.tiles],
            "offsets": [list(offset) for offset in self.offsets],
            "shape": list(self.shape),
        }

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Box, Tensor, Box, int, int]]:
        """Yield the pieces of tiles that make up elements ``start:stop``.

        A box of consecutive elements has one index in each of its first dimensions, a range in the
        next dimension, and all indices in the remaining dimensions. The elements of its overlap
        with a tile are therefore consecutive in the tile as well.

        Yields:
            (box of consecutive elements, tile, overlap of both as a box, number of the overlap's
            first element in the tile, number after its last).
        """
        for box in boxes(self.shape, start, stop):
            for tile, offset in zip(self.tiles, self.offsets):
                overlap = tuple(
                    (max(first, begin), min(last, begin + count))
                    for (first, last), begin, count in zip(box, offset, tile.shape)
                )
                if any(first >= last for first, last in overlap):
                    continue
                position = 0
                for (first, _), begin, count in zip(overlap, offset, tile.shape):
                    position = position * count + first - begin
                yield box, tile, overlap, position, position + _numel(overlap)


def _numel(box: Box) -> int:
    return math.prod(last - first for first, last in box)
