"""Vectors in block runs, as the engine reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from resumerge.kernels import BlockRun, MapFunction, Scan
from resumerge.kernels.blocks import sampled
from resumerge.native import Vector


def runs_of(length: int, size: int, together: int = 1) -> Iterator[tuple[slice, BlockRun]]:
    """Yield the runs of so many blocks of a vector, each with its place in the vector."""
    step = size * together
    for number, start in enumerate(range(0, length, step)):
        here = min(step, length - start)
        yield slice(start, start + here), BlockRun(number * together, size, here)


def part_of(whole: Vector, *parts: slice) -> Vector:
    """Return copies of some elements of a vector and of its base."""
    base = whole.base and part_of(whole.base, *parts)
    return Vector(np.concatenate([whole.data[part] for part in parts]), whole.dtype, base)


def scanned(vectors: Mapping[int, Vector], size: int, together: int = 1) -> Scan[Any]:
    """Return a scan over runs of so many blocks; a sample reads each block's first elements."""
    length = len(next(iter(vectors.values())))

    def parts(sample: bool) -> Iterable[tuple[list[slice], BlockRun]]:
        for place, run in runs_of(length, size, together):
            if not sample:
                yield [place], run
                continue
            starts = ((place.start + b.start, sampled(b.stop - b.start)) for b in run.blocks())
            first = [slice(start, start + few) for start, few in starts]
            yield (
                first,
                BlockRun(run.first, sampled(size), sum(part.stop - part.start for part in first)),
            )

    def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
        for places, run in parts(sample):
            yield function({i: part_of(v, *places) for i, v in vectors.items()}, run)

    return scan
