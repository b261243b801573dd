"""Promise: a tensor in tiles has the elements of its tiles, in whatever range it is read, and
tells what is read of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reading import evaluation, read

from resumerge.tensors import Stored, Tiled
from resumerge.tensors.evaluation import InFile


class Tiles:
    """Files of one tile each, none of which is on this disk."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents

    def descriptor(self, tensor: InFile) -> int | None:
        return None

    def fill(self, tensor: InFile, offset: int, buffer: memoryview) -> None:
        buffer[:] = self._contents[tensor.file][offset : offset + len(buffer)]


@st.composite
def grids(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[int]]]:
    """Draw a shape, and the cuts of each axis, with both ends."""
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    cuts = [sorted({0, count, *draw(st.sets(st.integers(0, count)))}) for count in shape]
    return shape, cuts


@given(grid=grids(), data=st.data())
def test_any_range_of_any_grid(
    grid: tuple[tuple[int, ...], list[list[int]]], data: st.DataObject
) -> None:
    shape, cuts = grid
    whole = np.arange(np.prod(shape, dtype=int), dtype=np.uint16).reshape(shape)
    tiled, contents = _cut(whole, cuts, data.draw(st.randoms()).random)
    start = data.draw(st.integers(0, whole.size))
    stop = data.draw(st.integers(start, whole.size))
    found = read(evaluation(Tiles(contents)), tiled, start, stop)
    assert found == whole.reshape(-1)[start:stop].tobytes()
    told = sorted(
        value
        for leaf, first, last in tiled.reads(start, stop)
        if isinstance(leaf, Stored)
        for value in np.frombuffer(contents[leaf.file], np.uint16)[first:last].tolist()
    )
    assert told == list(range(start, stop))
    assert list(tiled.no_longer_read(start, stop)) == list(tiled.reads(start, stop))


def _cut(
    whole: np.ndarray, cuts: list[list[int]], random: object
) -> tuple[Tiled, dict[str, bytes]]:
    boxes = list(_boxes(cuts))
    boxes.sort(key=lambda box: random())  # type: ignore[operator]
    contents, tiles = {}, []
    for box in boxes:
        part = whole[tuple(slice(first, last) for first, last in box)]
        name = f"{box}"
        contents[name] = part.tobytes()
        tiles.append(Stored("t", "BF16", part.shape, name, 0))
    offsets = tuple(tuple(first for first, _ in box) for box in boxes)
    return Tiled.of("t", whole.shape, tuple(tiles), offsets), contents


def _boxes(cuts: list[list[int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    return product(*(list(pairwise(axis)) for axis in cuts))
