"""Blocks of a tensor, block runs, and scans: how methods read their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np


@dataclass(frozen=True)
class Block:
    """The elements ``start:stop`` of a flattened tensor: its block number `index`, from 0."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True)
class BlockRun:
    """Consecutive blocks of a flattened tensor that one call reads and computes.

    The result of a kernel depends on a tensor's blocks, not on how they are split into block runs.

    Args:
        first: the index of the first block in the tensor.
        size: the number of elements of a block; the last block of a tensor may be shorter.
        length: the number of elements of the block run.
        step: the distance in the tensor between the starts of two blocks, in elements. It equals
            `size`, unless only the first elements of each block are read; 0 also means `size`.
    """

    first: int
    size: int
    length: int
    step: int = 0

    @classmethod
    def of(cls, numel: int, size: int, indices: range, *, sample: bool = False) -> BlockRun:
        """Return the block run of consecutive blocks of a tensor.

        Args:
            numel: the number of elements of the tensor.
            size: the number of elements of a block.
            indices: the indices of the blocks in the tensor.
            sample: whether only the first sixteenth of each block is read.
        """
        length = min(indices.stop * size, numel) - indices.start * size
        if not sample:
            return cls(indices.start, size, length)
        whole_blocks, last_elements = divmod(length, size)
        return cls(
            indices.start,
            sampled(size),
            whole_blocks * sampled(size) + sampled(last_elements),
            size,
        )

    def __post_init__(self) -> None:
        if not self.step:
            object.__setattr__(self, "step", self.size)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return -(-self.length // self.size)

    def blocks(self) -> Iterator[slice]:
        """Yield the place of each block in the block run, as a slice of elements."""
        for start in range(0, self.length, self.size):
            yield slice(start, min(start + self.size, self.length))

    def in_tensor(self) -> list[Block]:
        """Return the blocks; their elements are counted from the start of the tensor."""
        begin = self.first * self.step
        return [
            Block(
                self.first + number,
                begin + number * self.step,
                begin + number * self.step + place.stop - place.start,
            )
            for number, place in enumerate(self.blocks())
        ]

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of the tensor that are read, as (first element, last element + 1)."""
        if self.step == self.size:
            begin = self.first * self.size
            return [(begin, begin + self.length)]
        return [(block.start, block.stop) for block in self.in_tensor()]


def sampled(elements: int) -> int:
    """Return the number of elements that a sampling scan reads of a block: the first sixteenth."""
    return -(-elements // 16)


Partial = TypeVar("Partial")
MapFunction = Callable[[Any, Any], Partial]
"""A function of a block run's inputs and the `BlockRun`, or of a block's inputs and the `Block`.

It returns the partial result of the block run or block.
"""


class Scan(Protocol[Partial]):
    """A function that applies a map function to every block run of a tensor, on several threads.

    For a method that computes with torch, the map function is applied to each `Block` instead.
    """

    def __call__(self, function: MapFunction[Partial], sample: bool = False) -> Iterator[Partial]:
        """Yield the partial results in order.

        Args:
            function: the map function, which several threads may call at the same time.
            sample: whether only the first sixteenth of each block is read. A result from a sample
                is a guess, and another scan has to verify it.
        """


def scan_mapped(scan: Scan[Any], convert: Callable[[Any, Any], Any]) -> Scan[Any]:
    """Return a scan that passes ``convert(inputs, run)`` to its map functions, not the inputs."""

    def scan_converted(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
        return scan(lambda x, run: function(convert(x, run), run), sample)

    return scan_converted


def sum_blocks(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the sum of partial results over all blocks, added in their order.

    Args:
        parts: an array for each block run; its first axis is the block.
    """
    block_sum: np.ndarray | None = None
    for run_results in parts:
        for block_result in run_results:
            block_sum = block_result if block_sum is None else block_sum + block_result
    assert block_sum is not None, "a tensor has at least one block"
    return block_sum
