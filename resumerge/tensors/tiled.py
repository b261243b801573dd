"""A tensor that lies in tiles: boxes of its elements, as training on several processes saves it."""

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
        tiles: the tiles, of the tensor's dtype and as many dimensions.
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

    def passed(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for _, tile, _, first, last in self._pieces(start, stop):
            yield from tile.passed(first, last)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for _, tile, _, first, last in self._pieces(start, stop):
            yield from tile.reads(first, last)

    def working_bytes(self, elements: int) -> float:
        own = elements * (BITS[self.dtype] // 8)
        return own + super().working_bytes(elements)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        inner, width, done = evaluation.inner(), BITS[self.dtype] // 8, 0
        around: Box | None = None
        for box, tile, within, first, last in self._pieces(start, stop):
            if box is not around:
                done += width * _numel(around) if around is not None else 0
                around = box
            size = width * (last - first)
            if last - first == _numel(box):
                tile.read(inner, first, last, out[done : done + size])
                continue
            counts = tuple(end - begin for begin, end in box)
            data = evaluation.take("tile", size)
            tile.read(inner, first, last, data)
            target = out[done : done + width * _numel(box)].view(f"u{width}").reshape(counts)
            place = tuple(
                slice(begin - origin, end - origin)
                for (begin, end), (origin, _) in zip(within, box)
            )
            target[place] = data.view(f"u{width}").reshape(target[place].shape)

    def as_json(self) -> dict[str, Any]:
        return {
            "tiles": [tile.as_json() for tile in self.tiles],
            "offsets": [list(offset) for offset in self.offsets],
            "shape": list(self.shape),
        }

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Box, Tensor, Box, int, int]]:
        """Yield the pieces of tiles that elements ``start:stop`` consist of.

        A box of consecutive elements has one index in its first dimensions, a range in one, and all
        indices in those after it. So what it has of a tile is consecutive there as well.

        Yields:
            (box of consecutive elements, tile, what of the box is in the tile, the first of its
            elements in the tile, one past the last).
        """
        for box in boxes(self.shape, start, stop):
            for tile, offset in zip(self.tiles, self.offsets):
                within = tuple(
                    (max(first, begin), min(last, begin + count))
                    for (first, last), begin, count in zip(box, offset, tile.shape)
                )
                if any(first >= last for first, last in within):
                    continue
                at = 0
                for (first, _), begin, count in zip(within, offset, tile.shape):
                    at = at * count + first - begin
                yield box, tile, within, at, at + _numel(within)


def _numel(box: Box) -> int:
    return math.prod(last - first for first, last in box)
