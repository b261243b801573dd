"""Promise: a tensor of any kind is what its definition says in any range, reads what it tells, and
is described in the ledger by what decides its bytes."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from every_kind import EXAMPLES, OF_TORCH, Elements, Example, told
from reading import read

from resumerge.tensors import Stored, Tensor, stored_in, with_stored
from resumerge.tensors.adapters import adapted as adapted_module
from resumerge.tensors.adapters.both_matrices import BothMatrices
from resumerge.tensors.computed import Computed
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import HeldValues
from resumerge.tensors.quantised import dequantised, encoded, packed_blocks, repacked

LARGE = 1 << 20
"""Bytes that hold all values."""

CASES = [
    *(pytest.param(make, id=name) for name, make in EXAMPLES.items()),
    *(
        pytest.param(make, id=name, marks=pytest.mark.needs("torch"))
        for name, make in OF_TORCH.items()
    ),
]
of_every_kind = pytest.mark.parametrize("make", CASES)
of_what_lies_in_files = pytest.mark.parametrize("make", [c for c in CASES if c.id != "spilled"])


@of_every_kind
@pytest.mark.parametrize("piece", [None, 7])
def test_any_range_is_that_part_of_what_it_is_defined_as(
    make: Callable[[], Example], piece: int | None
) -> None:
    """However few elements are computed at once."""
    example = make()
    tensor, width = example.tensor, BITS[example.tensor.dtype] // 8
    whole = np.ascontiguousarray(example.expected).tobytes()
    assert (tensor.numel, tensor.nbytes) == (example.expected.size, len(whole))
    (with_, _), places = example.means(LARGE), range(tensor.numel + 1)
    patches = [
        patch.object(module, name, piece or getattr(module, name))
        for module, name in (
            (dequantised, "PIECE_ELEMENTS"),
            (packed_blocks, "PIECE_ELEMENTS"),
            (encoded, "PIECE_ELEMENTS"),
            (repacked, "ROWS"),
            (adapted_module, "CHUNK"),
        )
    ]
    for each in patches:
        each.start()
    try:
        assert read(with_, tensor) == whole
        for start in places:
            for stop in places[start :: 4 if piece is None else 3]:
                found = read(with_, tensor, start, stop)
                assert found == whole[start * width : stop * width], (start, stop)
    finally:
        for each in patches:
            each.stop()


@of_what_lies_in_files
def test_what_is_read_of_files_is_what_is_told_and_no_more(make: Callable[[], Example]) -> None:
    """What is read once comes first; then each range reads its own."""
    example = make()
    tensor = example.tensor
    once = told(tensor.reads_once())
    with_, files = example.means(LARGE)
    read(with_, tensor)
    assert files.read == once | told(tensor.reads(0, tensor.numel))
    assert {name for name, _ in files.read} == set(example.arrays)
    for start in range(tensor.numel):
        for stop in (start, *range(start + 1, tensor.numel + 1, 3)):
            files.read.clear()
            read(with_, tensor, start, stop)
            assert files.read == told(tensor.reads(start, stop)), (start, stop)


@of_every_kind
def test_what_has_passed_is_read_by_no_later_element(make: Callable[[], Example]) -> None:
    """And with the last element all has passed that was read."""
    tensor = make().tensor
    passed: Elements = set()
    for stop in range(1, tensor.numel + 1):
        passed |= told(tensor.passed(stop - 1, stop))
        later = told(tensor.reads(stop, tensor.numel)) if stop < tensor.numel else set()
        assert not passed & later, stop
    assert passed >= told(tensor.reads(0, tensor.numel))
    assert passed == told(tensor.passed(0, tensor.numel))


@of_every_kind
def test_the_ledger_describes_what_decides_its_bytes(make: Callable[[], Example]) -> None:
    example = make()
    assert example.tensor.as_json() == example.ledger


@of_every_kind
def test_the_same_is_computed_of_other_tensors(make: Callable[[], Example]) -> None:
    """Each child takes the place of the one that it replaces."""
    example = make()
    tensor = example.tensor

    def renamed(leaf: Stored) -> Stored:
        return replace(leaf, name=f"{leaf.name}_")

    leaves = {leaf.name for leaf in stored_in(tensor)}
    assert leaves == set(example.arrays)
    other = with_stored(tensor, renamed)
    assert {leaf.name for leaf in stored_in(other)} == {f"{name}_" for name in leaves}
    arrays = {f"{name}_": array for name, array in example.arrays.items()}
    with_, _ = replace(example, arrays=arrays).means(LARGE)
    assert read(with_, other) == np.ascontiguousarray(example.expected).tobytes()
    described = re.sub(r'("tensor": "\w+)', r"\1_", json.dumps(tensor.as_json()))
    assert json.dumps(other.as_json()) == described
    assert with_stored(tensor, lambda leaf: leaf) is tensor


class Recorded(HeldValues):
    """A cache that holds all values, and records what it was asked for: bytes by key."""

    def __init__(self) -> None:
        super().__init__(LARGE)
        self.asked: dict[Hashable, int] = {}

    def get(self, key: Hashable, nbytes: int, make: Callable[[], Any]) -> Any:
        self.asked[key] = nbytes
        return super().get(key, nbytes, make)


@of_every_kind
def test_what_is_held_has_the_declared_bytes(make: Callable[[], Example]) -> None:
    example = make()
    tensor, held = example.tensor, Recorded()
    with_, _ = example.means()
    with_.held = held
    read(with_, tensor)
    assert [*held.asked.values()] == ([tensor.held_bytes] if tensor.held_bytes else [])


def test_there_is_an_example_of_every_kind() -> None:
    """Matrices of adapters and results of steps have tests of their own."""
    kinds: list[type[Tensor]] = [Tensor]
    for kind in kinds:
        kinds += kind.__subclasses__()
    apart = {BothMatrices, *BothMatrices.__subclasses__(), Computed}
    shown = {type(make().tensor) for make in (EXAMPLES | OF_TORCH).values()}
    ours = {k for k in kinds if k.__module__.startswith("resumerge.")}
    assert {kind for kind in ours if not inspect.isabstract(kind)} - apart == shown
