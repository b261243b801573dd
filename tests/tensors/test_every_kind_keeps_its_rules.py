"""Promise: a tensor of any kind is what its definition says in any range, reads what it tells, and
is described in the ledger by what decides its bytes."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_kind import EXAMPLES, OF_TORCH, OFFSET, Elements, Example, told
from reading import read

from resumerge.tensors import (
    Adapted,
    Dequantised,
    Gathered,
    Halved,
    Interleaved,
    Rounded,
    Sliced,
    Spilled,
    Stacked,
    Stored,
    Tensor,
    Tiled,
    Transposed,
    stored_in,
    with_stored,
)
from resumerge.tensors.adapters import adapted as adapted_module
from resumerge.tensors.adapters.both_matrices import BothMatrices
from resumerge.tensors.computed import Computed
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import HeldValues
from resumerge.tensors.generated import Filled
from resumerge.tensors.quantised import dequantised, encoded, packed_blocks, repacked
from resumerge.tensors.rows import AVERAGE, Rows

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


SMALL = {
    (dequantised, "PIECE_ELEMENTS"): 7,
    (packed_blocks, "PIECE_ELEMENTS"): 7,
    (encoded, "PIECE_ELEMENTS"): 7,
    (repacked, "ROWS"): 2,
    (adapted_module, "CHUNK"): 7,
}
"""Small values for the constants that decide how much is computed at once."""


@of_every_kind
@pytest.mark.parametrize("small", [False, True])
def test_any_range_is_that_part_of_what_it_is_defined_as(
    make: Callable[[], Example], small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers do not depend on how many elements are computed at once."""
    for (module, name), size in SMALL.items():
        monkeypatch.setattr(module, name, size if small else getattr(module, name))
    example = make()
    tensor, width = example.tensor, BITS[example.tensor.dtype] // 8
    whole = np.ascontiguousarray(example.expected).tobytes()
    assert (tensor.shape, tensor.nbytes) == (example.expected.shape, len(whole))
    (with_, _), places = example.means(LARGE), range(tensor.numel + 1)
    assert read(with_, tensor) == whole
    for start in places:
        for stop in {*places[start :: 3 if small else 4], tensor.numel}:
            found = read(with_, tensor, start, stop)
            assert found == whole[start * width : stop * width], (start, stop)


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
    with_, files = example.means(LARGE)
    one = tensor.numel - 1 if isinstance(tensor, Gathered) else 0  # a row of padding is last
    read(with_, tensor, one, one + 1)
    assert files.read == once | told(tensor.reads(one, one + 1))


@of_every_kind
def test_what_has_passed_is_read_by_no_later_element(make: Callable[[], Example]) -> None:
    """All elements that were read have passed with the last element.

    Elements that a held value was computed from do not pass earlier, because the value may be
    dropped. Those of norms do, because all norms are computed before the first element.
    """
    tensor = make().tensor
    held = set() if isinstance(tensor, Adapted) else told(tensor.reads_once())
    passed: Elements = set()
    for stop in range(1, tensor.numel + 1):
        passed |= told(tensor.no_longer_read(stop - 1, stop))
        later = told(tensor.reads(stop, tensor.numel)) | held if stop < tensor.numel else set()
        assert not passed & later, stop
    assert passed >= told(tensor.reads(0, tensor.numel))
    assert passed == told(tensor.no_longer_read(0, tensor.numel))


@of_every_kind
def test_the_ledger_describes_what_decides_its_bytes(make: Callable[[], Example]) -> None:
    example = make()
    assert example.tensor.as_json() == example.ledger


@of_every_kind
def test_the_same_is_computed_of_other_tensors(make: Callable[[], Example]) -> None:
    """Each new child takes the place of the one that it replaces."""
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
    """A cache that holds all values, and records the size of each by its key."""

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
    with_ = replace(with_, held=held)
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


EMPTY = Stored("w", "F32", (0, 4), "f", OFFSET)
ONE = Stored("c", "I8", (), "f", OFFSET)


@pytest.mark.parametrize(
    "tensor",
    [
        Rounded.of(EMPTY, "BF16"),
        Sliced.of("p", (0,), EMPTY),
        Stacked.of("s", (0, 4), (EMPTY, EMPTY)),
        Spilled.of(EMPTY, 5),
        Tiled.of("t", (0, 4), (EMPTY,), ((0, 0),)),
        Halved.of(EMPTY, 2),
        Interleaved.of(EMPTY, 2),
        Transposed.of(EMPTY),
        Dequantised.elementwise(EMPTY, (0, 4), "plain"),
        Dequantised.elementwise(replace(EMPTY, shape=(4, 0)), (4, 0), "plain"),
        Dequantised.shifted(EMPTY, 1.0),
        Filled("w", "BF16", (0, 4), 1.0),
        replace(EXAMPLES["merged"]().tensor, shape=(0, 4), operands=(EMPTY, EMPTY)),
    ],
    ids=lambda tensor: type(tensor).__name__,
)
def test_a_tensor_without_elements_has_no_bytes(tensor: Tensor) -> None:
    with_, _ = Example(tensor, {"w": np.empty(0, np.float32)}, np.empty(0), {}).means()
    assert (tensor.numel, tensor.nbytes) == (0, 0)
    assert read(with_, tensor) == b""
    assert not told(tensor.reads(0, 0)) and not told(tensor.no_longer_read(0, 0))
    assert tensor.working_bytes(0) >= 0 and tensor.blocks_at_once(5, 100) >= 1


def test_one_number_is_dequantised_too() -> None:
    """A shape without dimensions has a row and a column."""
    tensor = Dequantised.elementwise(ONE, (), "plain")
    with_, _ = Example(tensor, {"c": np.array(-3, np.int8)}, np.empty(0), {}).means()
    assert (tensor.rows, tensor.columns, tensor.shape) == (1, 1, ())
    assert read(with_, tensor) == np.float32(-3).tobytes()


def twice(kind: str) -> tuple[Tensor, np.ndarray]:
    """Return a tensor over another of its own kind, of 12 rows of 2 numbers, and its numbers."""
    values = np.arange(24, dtype=np.float32).reshape(12, 2)
    leaf = Stored("w", "F32", (12, 2), "f", OFFSET)
    order = {"halved": [0, 2, 1, 3], "interleaved": [0, 2, 1, 3]}
    match kind:
        case "rounded":
            return Rounded.of(Rounded.of(Rounded.of(leaf, "F64"), "F16"), "F32"), values
        case "halved" | "interleaved":
            make: Any = Halved.of if kind == "halved" else Interleaved.of
            rows = np.arange(12).reshape(3, 4)[:, order[kind]].reshape(-1)
            return make(make(leaf, 4), 4), values[rows][rows]
        case "stacked":
            part = Stacked.of("p", (12, 2), (leaf,))
            return Stacked.of("s", (24, 2), (part, part)), np.vstack([values, values])
        case "tiled":
            left = Tiled.of("p", (12, 2), (leaf,), ((0, 0),))
            return Tiled.of("t", (12, 4), (left, left), ((0, 0), (0, 2))), np.hstack([values] * 2)
        case "merged":
            outer: Any = EXAMPLES["merged"]().tensor
            inner = replace(outer, shape=(12, 2), operands=(leaf, leaf), block_elements=7)
            both = replace(inner, operands=(leaf, inner), block_elements=5)
            return both, 0.25 * values + 2 * 2.25 * values
        case "transposed":
            return Transposed.of(Transposed.of(leaf)), values
        case "gathered":
            none = np.array([], np.int64)
            backwards: Any = Rows.of(
                np.zeros(3, int), np.array([2, 1, 0]), 3, (np.array([0]), none, none)
            )
            inner = Gathered.of("g", (3, 2), (leaf,), backwards)
            return Gathered.of("h", (3, 2), (inner,), backwards), values[:3]
        case "averaged":
            member = (np.array([0, 2]), np.array([0, 0]), np.array([0, 1]))
            average: Any = Rows.of(np.array([AVERAGE] * 2), np.zeros(2, int), 2, member)
            inner = Gathered.of("g", (2, 2), (leaf,), average)
            return Gathered.of("h", (2, 2), (inner,), average), np.full((2, 2), [1.0, 2.0])
    return Dequantised.shifted(Dequantised.shifted(leaf, 1.0), 2.0), values + 3


@pytest.mark.parametrize(
    "kind",
    ["rounded", "halved", "interleaved", "stacked", "tiled", "transposed", "gathered", "averaged",
     "merged", "dequantised"],
)  # fmt: skip
def test_what_is_within_a_tensor_of_its_own_kind_uses_other_buffers(kind: str) -> None:
    """Numbers are right in any range, also in one that cuts rows and groups and needs buffers."""
    tensor, expected = twice(kind)
    leaf_values = np.arange(24, dtype=np.float32)
    with_, _ = Example(tensor, {"w": leaf_values}, expected, {}).means(LARGE)
    flat = np.ascontiguousarray(expected, np.float32).reshape(-1)
    for start in range(len(flat)):
        for stop in range(start + 1, len(flat) + 1):
            found = np.frombuffer(read(with_, tensor, start, stop), np.float32)
            assert found.tolist() == flat[start:stop].tolist(), (start, stop)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("packed_blocks", {"coded": 2 * 4}),
        ("encoded", {"floats": 4 * 21}),
        ("interleaved", {"in order": 2 * 36}),
        ("dequantised", {"codes": 3}),
        ("quantised", {"to quantise": 4 * 42, "before quantising": 2 * 42}),
    ],
)
def test_what_is_whole_is_computed_into_what_is_read(
    name: str, taken: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few elements are computed at once, without a buffer for parts of blocks, rows and groups."""
    for (module, constant), size in SMALL.items():
        monkeypatch.setattr(module, constant, size)
    example = EXAMPLES[name]()
    with_, _ = example.means(LARGE)
    read(with_, example.tensor)
    buffers = with_.buffers._local.buffers
    assert {name: len(buffer) for (depth, name), buffer in buffers.items() if not depth} == taken
