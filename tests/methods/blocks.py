"""A vector taken block by block, for tests of what the methods share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from resumerge.kernels import Block, Scan


def blocks(numel: int, size: int) -> list[Block]:
    """The blocks of a vector; an empty vector has one."""
    starts = range(0, max(numel, 1), size)
    return [Block(i, start, min(start + size, numel)) for i, start in enumerate(starts)]


def scanned(vectors: dict[int, Tensor], size: int) -> Scan[Any]:
    """Runs a function over every block of the vectors, each time on copies."""
    numel = len(next(iter(vectors.values())))

    def scan(
        function: Callable[[dict[int, Tensor], Block], Any], sample: bool = False
    ) -> Iterator[Any]:
        for block in blocks(numel, size):
            block = block.sample() if sample else block
            yield function(
                {i: v[block.start : block.stop].clone() for i, v in vectors.items()}, block
            )

    return scan


def by_block(vector: Tensor, size: int, change: Callable[[Tensor, Block], Tensor]) -> Tensor:
    """A vector changed block by block, from the last block to the first."""
    result = torch.empty_like(vector)
    for block in reversed(blocks(len(vector), size)):
        result[block.start : block.stop] = change(vector[block.start : block.stop].clone(), block)
    return result
