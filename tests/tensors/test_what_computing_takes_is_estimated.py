"""Promise: the estimate knows what a tensor of any kind takes: time, buffers, and what is held."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from every_kind import EXAMPLES, OF_TORCH, Example
from reading import read

from resumerge.kernels.draws import WORKING_BYTES
from resumerge.kernels.quantised import Code
from resumerge.methods import METHODS
from resumerge.tensors import Merged, Quantised, Rounded, Stacked, Stored, with_stored
from resumerge.tensors.adapters.adapted import ADAPTER_SCRATCH, CHUNK, MATMUL_BYTES, Adapted
from resumerge.tensors.quantised.form import Form

AT_ONCE = 10
"""Elements that are read at once."""

PIECE, GROUPS = 1 << 17, 1 << 16
LINEAR = METHODS["linear"].cost

BYTES: dict[str, float] = {
    "rounded": 4 * AT_ONCE,
    "spilled": 2 * AT_ONCE,
    "tiled": 2 * AT_ONCE,
    "gathered": 4 * AT_ONCE,
    # The table before and after its rounding, three numbers of a row to take the mean of; and
    # the table's own buffer.
    "padded": (4 + 2 + 12) * AT_ONCE + 4 * AT_ONCE,
    "halved": 2 * 4 * 3,
    "interleaved": 2 * 2 * 36,
    "dequantised": (PIECE + 6) * (1 + 4 + 8),
    "dequantised_by_groups_of_columns": (PIECE + 6) * (1 + 4 + 8),
    "dequantised_whose_last_row_is_shorter": (PIECE + 6) * (1 + 4 + 8),
    "dequantised_with_one_scale": (PIECE + 3) * (1 + 4 + 8),
    "shifted": (PIECE + 12) * (2 + 4),
    "packed_blocks": (GROUPS + 2 * 3) * 32,
    "encoded": 4 * (2 + 2) * 3 + (1 << 15) * 24,
    "quantised": 42 * (4 + 2) + 3 * 4 * 42 / 4 + 21 + 9 * (42 + 6),
    "drawn": 2 * 8 * AT_ONCE + WORKING_BYTES,
    "drawn_normally": 2 * 8 * AT_ONCE + WORKING_BYTES,
    "filled": 4 * AT_ONCE,
    # Three blocks of 5 are all 12 elements: operands, result, what is measured of it.
    "merged": 12 * (4 + 2 + 4 + 4 * (LINEAR.scratch + 2 * LINEAR.per_input)) + 4 * 12,
    "adapted": ADAPTER_SCRATCH,
    "adapted_with_magnitudes": ADAPTER_SCRATCH + 2 * AT_ONCE,
}
"""The working bytes of examples; all others have 0, or those of an example that they are like."""

MILLISECONDS = {
    "dequantised": 60 * 0.8,
    "dequantised_by_groups_of_columns": 24 * 0.8,
    "dequantised_whose_last_row_is_shorter": 14 * 0.8,
    "dequantised_with_one_scale": 12 * 0.8,
    "shifted": 12 * 0.8,
    "packed_blocks": 21 * 1.5,
    "encoded": 21 * 2.5,
    "quantised": 42 * 1.2,
}

HELD: dict[str, tuple[int, Any]] = {
    "padded": (4 * 2, None),
    "transposed": (2 * 12, ("transposed", 0)),
    "repacked_in_order_of_awq": (80 + 80, ("repacked", 0)),
    "repacked_along_columns": (48 + 48, ("repacked", 0)),
    "repacked_with_rows_to_spare": (57 + 36, ("repacked", 0)),
    "repacked_bytes": (21 + 24, ("repacked", 0)),
    "repacked_pairs": (12 + 12, ("repacked", 0)),
    "dequantised_by_groups_of_columns": (8 * 6, "columns of 6"),
    "quantised": (4 * 2 * 2 + 4 + 4, "scales"),
    # A of float64, and B as it is stored; with magnitudes a factor for each output, at most.
    "adapted": (2 * (3 * 4 + 4 * 8), 5),
    "adapted_transposed": (2 * (4 * 4 + 3 * 8), 5),
    "adapted_with_magnitudes": (2 * (3 * 4 + 4 * 8) + 8 * 4, 5),
    "adapted_transposed_with_magnitudes": (2 * (4 * 4 + 3 * 8) + 8 * 4, 5),
}

EXACT = ("adapted_exactly", "adapted_transposed", "adapted_transposed_with_magnitudes")
BYTES |= dict.fromkeys(EXACT, BYTES["adapted_with_magnitudes"])
HELD["adapted_exactly"] = HELD["adapted"]

NO_LEAVES = ("drawn", "drawn_normally", "filled", "literal", "literal_floats")

of_every_kind = pytest.mark.parametrize("name", [*EXAMPLES, *OF_TORCH])


def example(name: str) -> Example:
    return (EXAMPLES | OF_TORCH)[name]()


@of_every_kind
def test_each_kind_has_the_time_and_memory_of_what_it_does(name: str) -> None:
    tensor = example(name).tensor
    assert tensor.working_bytes(AT_ONCE) == BYTES.get(name, 0)
    assert tensor.own_milliseconds == pytest.approx(MILLISECONDS.get(name, 0))
    assert (tensor.held_bytes, tensor.held_in_turn) == HELD.get(name, (0, None))


class Costly(Stored):
    """A leaf that takes buffers."""

    def working_bytes(self, elements: int) -> float:
        return 1e9 * elements


@pytest.mark.parametrize("name", [name for name in (*EXAMPLES, *OF_TORCH) if name not in NO_LEAVES])
def test_what_operands_take_counts_too(name: str) -> None:
    """The buffers of operands count for at least as many elements as are read at once."""
    tensor = example(name).tensor
    names = [f.name for f in fields(Stored) if f.init]
    costly = with_stored(tensor, lambda leaf: Costly(**{n: getattr(leaf, n) for n in names}))
    more = costly.working_bytes(AT_ONCE) - tensor.working_bytes(AT_ONCE)
    assert more >= 1e9 * min(AT_ONCE, 8)


@of_every_kind
def test_what_is_needed_in_turn_is_of_one_model(name: str) -> None:
    """The key has the number of the model where models may be read side by side."""
    tensor = with_stored(example(name).tensor, lambda leaf: replace(leaf, source=7))
    place = HELD.get(name, (0, None))[1]
    if isinstance(place, tuple):
        place = (place[0], 7)
    assert tensor.held_in_turn == (7 if place == 5 else place)


@pytest.mark.parametrize(
    "name",
    [*EXAMPLES, *(pytest.param(name, marks=pytest.mark.needs("torch")) for name in OF_TORCH)],
)
def test_no_more_buffers_are_taken_than_were_declared(name: str) -> None:
    """All elements are read at once, and none is measured. The row for averages does not count."""
    made = example(name)
    with_, _ = made.means(1 << 20)
    read(with_, made.tensor)
    taken = sum(len(b) for (_, name), b in with_.buffers._local.buffers.items() if name != "member")
    assert taken <= made.tensor.working_bytes(made.tensor.numel)


def stored(*shape: int, dtype: str = "F32", source: int = 0) -> Stored:
    return Stored("w", dtype, shape, "f", 0, source=source)


def test_more_rows_than_are_computed_at_once_take_no_more() -> None:
    """A weight in float32 takes no buffer of its own; an adapter's change is kept for measuring."""
    form = Form("int4", Code.INT4, 7.5, "BF16")
    tensor = replace(Quantised.of("q", stored(100, 8), form, (2, 4)), rows_at_once=4)
    piece = 4 * 8
    plain = piece * 4 + 3 * 4 * piece / 4 + piece / 2 + 9 * (piece + 8)
    assert tensor.working_bytes(1) == plain
    weight = Adapted.of("w", stored(100, 8, dtype="BF16"), stored(2, 8), stored(100, 2), 1.0, False)
    within = ADAPTER_SCRATCH + 2 * piece + 4 * piece
    assert replace(tensor, weight=weight.exact).working_bytes(1) == plain + within
    in_place = piece * 2 + ADAPTER_SCRATCH + 2 * piece + 4 * piece
    assert replace(tensor, weight=weight).working_bytes(1) == plain + in_place
    assert weight.measuring_bytes(20, 12) == 2 * 20 + 4 * 20
    assert weight.exact.measuring_bytes(20, 12) == 4 * 20  # type: ignore[attr-defined]


def test_blocks_of_what_an_adapter_makes_count_what_is_measured() -> None:
    encoded: Any = example("encoded").tensor
    weight: Any = example("adapted_exactly").tensor
    of_adapter = replace(encoded, operand=weight)
    floats = (AT_ONCE // 4 + 2) * 3
    within = ADAPTER_SCRATCH + 2 * floats + 4 * floats
    sample = 8 * floats
    assert of_adapter.working_bytes(AT_ONCE) == encoded.working_bytes(AT_ONCE) + within + sample


@pytest.mark.parametrize("transposed", [False, True])
def test_wide_matrices_of_an_adapter_are_held_as_they_are(transposed: bool) -> None:
    """The left matrix is held in its own type, at least in float32; the right one in float64."""
    a, b = stored(2, 3, dtype="F64"), stored(4, 2, dtype="BF16")
    weight = stored(3, 4) if transposed else stored(4, 3)
    rows, columns = weight.shape
    left = 8 if transposed else 4
    tensor = Adapted.of("w", weight, a, b, 1.0, transposed)
    assert tensor.held_bytes == 2 * (rows * left + 8 * columns)
    wide = replace(tensor, b=replace(b, dtype="F64"))
    assert wide.held_bytes == 2 * (rows * 8 + 8 * columns)


def test_a_merge_counts_the_blocks_around_a_range_and_no_more_than_a_run() -> None:
    merged = example("merged").tensor
    assert isinstance(merged, Merged)
    long = replace(merged, shape=(1 << 20,), block_elements=1 << 10)
    scratch = 4 * (LINEAR.scratch + 2 * LINEAR.per_input)

    def of(blocks: int) -> float:
        run = blocks << 10
        return run * (4 + 4 + 2 + scratch) + 4 * run

    assert long.working_bytes(1) == of(2)
    assert long.working_bytes(1 << 10) == of(2)
    assert long.working_bytes((1 << 10) + 1) == of(3)
    assert long.working_bytes(1 << 24) == of(1 << 10)
    assert replace(long, shape=(1 << 22,)).working_bytes(1 << 24) == of(1 << 10), "a run"
    nested = replace(long, operands=(replace(long, block_elements=1 << 9), long))
    within = max(child.working_bytes(2 << 10) for child in nested.operands)
    own = (2 << 10) * (4 + 4 + 4 + scratch + 4)
    assert nested.working_bytes(1) == own + within


def test_chunks_of_adapters_fit_the_processors_cache() -> None:
    """A chunk decides the order of DoRA's sums of a transposed weight: it is part of the format."""
    assert (CHUNK, ADAPTER_SCRATCH, MATMUL_BYTES) == (1 << 16, 6 * 8 << 16, 12 << 20)


def test_what_is_computed_one_after_the_other_uses_the_same_buffers() -> None:
    part = Rounded.of(stored(4, 3), "BF16")
    assert Stacked.of("s", (8, 3), (part, part)).working_bytes(AT_ONCE) == 4 * AT_ONCE
