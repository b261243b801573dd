"""Blocks of a tensor, and scans over them: how reductions read their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


@dataclass(frozen=True)
class Block:
    """Elements ``start:stop`` of a flattened tensor, the `index`-th of its blocks."""

    index: int
    start: int
    stop: int

    def sample(self) -> Block:
        """Its first elements, a sixteenth of them."""
        return Block(self.index, self.start, self.start + -(-(self.stop - self.start) // 16))


Partial = TypeVar("Partial")
MapFunction = Callable[[Any, Block], Partial]
"""A function of a block's inputs and the block, which gives the block's partial result."""


class Scan(Protocol[Partial]):
    """Applies a map function to every block of a tensor, on several threads."""

    def __call__(self, function: MapFunction[Partial], sample: bool = False) -> Iterator[Partial]:
        """Yield the partial results in the order of the blocks.

        Args:
            sample: read only the first sixteenth of each block: for a guess that another scan
                verifies.
        """


def scan_mapped(scan: Scan[Any], convert: Callable[[Any, Block], Any]) -> Scan[Any]:
    """A scan whose map functions get ``convert(inputs, block)`` in place of the inputs."""

    def scan_converted(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
        return scan(lambda x, block: function(convert(x, block), block), sample)

    return scan_converted
