"""What does not go together is refused before anything is read or written.

The first five calls once read or wrote outside of their arguments.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resumerge.native import BF16, CODES, F16, F32, Vector, _kernels, use

F8 = CODES["float8_e5m2"]
KEY = bytes(16)


def vector(length: int = 4, dtype: int = F32) -> Vector:
    kinds = {F32: np.float32, BF16: np.uint16, F16: np.uint16, F8: np.uint8}
    return Vector(np.zeros(length, kinds[dtype]), dtype)


def delta(length: int = 4) -> Vector:
    return vector(length).less(vector(length))


def changed() -> tuple[Vector, list[Vector]]:
    """Return a base, and a difference from it."""
    base = vector()
    return base, [vector().less(base)]


def frozen(length: int = 4) -> Vector:
    numbers = np.zeros(length, np.float32)
    numbers.flags.writeable = False
    return Vector(numbers)


def bits(length: int = 4) -> np.ndarray:
    return np.ones(length, np.uint8)


def kept(length: int = 4, block: int = 4) -> Vector:
    """Return a vector of results that keeps one element of each block exactly."""
    room = np.zeros(-(-length // block), np.float32)
    return Vector(np.zeros(length, np.float32), F32, None, room, block, 1)


def sums(blocks: int = 1, models: int = 1) -> np.ndarray:
    return np.zeros((blocks, _kernels.MEASURED_SUMS + models * _kernels.MEASURED_MODEL_SUMS))


CALLS: dict[str, Callable[[Any], Any]] = {
    # As once
    "terms of 65,536 and 4 elements": lambda out: _kernels.weighted_sum(
        [vector(65_536), vector(4)], [1.0, 1.0], Vector(out)
    ),
    "a mask of 4 bytes": lambda out: _kernels.l1_norms(vector(1000), bits(4), 1000, out),
    "16-bit data called float32": lambda out: _kernels.round_to(
        Vector(np.zeros(4, np.uint16), F32), Vector(out)
    ),
    "rows of 300 in 1,000 elements": lambda out: _kernels.rank_mask(
        vector(1000), KEY, 0, 300, 300, 1, 0.5, 0.1, out.view(np.uint8)
    ),
    "counts into too little": lambda out: _kernels.count_changes([vector(64)], 0.0, 4, out),
    "conflicts into too little": lambda out: _kernels.count_conflicts([vector()] * 2, out),
    "conflicts of vectors of two bases": lambda out: _kernels.count_conflicts(
        [vector().less(vector()), vector()], np.empty(8, np.int64)
    ),
    "a distance of 4 and 5 elements": lambda out: _kernels.distance(
        vector(), vector(5), np.empty(5)
    ),
    "a distance into too little": lambda out: _kernels.distance(vector(), vector(), out),
    # Numbers of things
    "an empty result": lambda out: _kernels.round_to(vector(), Vector(out[:0])),
    "a result that is too long": lambda out: _kernels.round_to(vector(3), Vector(out)),
    "no vectors": lambda out: _kernels.weighted_sum([], [], Vector(out)),
    "too few weights": lambda out: _kernels.weighted_sum([vector()] * 2, [1.0], Vector(out)),
    "too many weights": lambda out: _kernels.weighted_sum([vector()], [1.0] * 2, Vector(out)),
    "too few weights of rows": lambda out: _kernels.weighted_sum_along(
        [vector()], np.zeros((1, 1), np.float32), 2, False, Vector(out)
    ),
    "a center of another length": lambda out: _kernels.clamp_to_distance(
        vector(), vector(5), 1.0, Vector(out)
    ),
    "a base of another length": lambda out: vector().less(vector(5)),
    "a mask that is too long": lambda out: _kernels.add_majority_mean(
        *changed(), bits(5), [1.0], Vector(out)
    ),
    "too few masks": lambda out: _kernels.add_task_vectors(
        *changed(), [], [1.0], [1.0], False, False, 1.0, Vector(out)
    ),
    "a threshold without its quota": lambda out: _kernels.add_task_vectors(
        *changed(),
        [(1,)],  # type: ignore[list-item]
        [1.0],
        [1.0],
        False,
        False,
        1.0,
        Vector(out),
    ),
    "a key of 15 bytes": lambda out: _kernels.random_mask(KEY[1:], 0, 4, 1, 0, out.view(np.uint8)),
    "products into too little": lambda out: _kernels.gram([vector(), vector()], 4, out),
    "columns in parts": lambda out: _kernels.column_gram([vector(5)], 2, 4, out),
    "blocks of no whole rows": lambda out: _kernels.column_gram([vector(6)], 2, 3, out),
    "keys into too little": lambda out: _kernels.keys(vector(5), False, out.view(np.uint32)),
    # Ranges
    "a block of nothing": lambda out: _kernels.l1_norms(vector(), None, 0, out),
    "a block below zero": lambda out: _kernels.sums_of_squares(vector(), None, -1, out),
    "a row of nothing": lambda out: _kernels.gram([vector()], 0, out),
    "all cut away": lambda out: _kernels.trimmed_mean([vector()] * 2, 1, Vector(out)),
    "a bracket upside down": lambda out: _kernels.keys_in_bracket(vector(), False, 2, 1, 4),
    "fewer counts than keys": lambda out: _kernels.key_of_rank(
        np.zeros(4, np.uint32), np.zeros(3, np.uint32), 1
    ),
    "keys that are floats": lambda out: _kernels.key_of_rank(out, np.zeros(4, np.uint32), 1),
    "a rank of 64 bits": lambda out: _kernels.key_of_rank(
        np.zeros(1, np.uint32), np.zeros(1, np.uint32), 1 << 63
    ),
    "a key of 33 bits": lambda out: _kernels.equal_counts(vector(), False, 1 << 32, 4),
    "a quota below zero": lambda out: _kernels.mask_above(
        vector(16), False, 0, -1, out.view(np.uint8)
    ),
    "a byte of 256": lambda out: _kernels.random_mask(KEY, 0, 4, 256, 0, out.view(np.uint8)),
    "a fraction of 65 bits": lambda out: _kernels.random_mask(
        KEY, 0, 4, 1, 1 << 64, out.view(np.uint8)
    ),
    "a probability above 1": lambda out: _kernels.rank_mask(
        vector(16), KEY, 0, 4, 4, 1, 0.9, 0.2, out.view(np.uint8)
    ),
    "a probability that is none": lambda out: _kernels.rank_mask(
        vector(16), KEY, 0, 4, 4, 1, float("nan"), 0.0, out.view(np.uint8)
    ),
    "a table of 255 numbers": lambda out: _kernels.decode(
        out.view(np.uint8)[:4], np.zeros(255, np.float32), out
    ),
    "numbers into too little": lambda out: _kernels.decode(
        out.view(np.uint8), np.zeros(512, np.float32), out
    ),
    "a grid that is too small": lambda out: _kernels.apply_grid(
        out, len(out), np.zeros(1, np.float32), 1, False
    ),
    "rows that are cut": lambda out: _kernels.apply_grid(
        out, len(out) - 1, np.zeros(2, np.float32), len(out), False
    ),
    "maxima of rows that are cut": lambda out: _kernels.block_maxima(out[:3], 2, 1, out),
    "room for too few maxima": lambda out: _kernels.block_maxima(
        np.zeros(4, np.float32), 4, 1, out[:3]
    ),
    "codes of rows that are cut": lambda out: _kernels.quantise(
        np.zeros(3, np.float32), 2, np.ones(1, np.float32), 2, 0, out.view(np.uint8)[:3]
    ),
    "pairs of codes in odd rows": lambda out: _kernels.quantise(
        np.zeros(6, np.float32), 3, np.ones(2, np.float32), 4, 1, out.view(np.uint8)[:3]
    ),
    "codes with too few scales": lambda out: _kernels.quantise(
        np.zeros(4, np.float32), 4, np.ones(1, np.float32), 2, 2, out.view(np.uint8)[:2]
    ),
    "codes of a fourth kind": lambda out: _kernels.quantise(
        np.zeros(4, np.float32), 4, np.ones(1, np.float32), 4, 3, out.view(np.uint8)[:4]
    ),
    "an element type of 99": lambda out: Vector(out, 99),
    "an instruction set of elsewhere": lambda out: use("sse9"),
    "room for exact results of another number": lambda out: Vector(
        np.zeros(5, np.float32), F32, None, out, 2, 1
    ),
    "more measured than a block has": lambda out: Vector(
        np.zeros(4, np.float32), F32, None, out, 2, 3
    ),
    "exact results of blocks of nothing": lambda out: Vector(
        np.zeros(4, np.float32), F32, None, out, 0, 0
    ),
    "measurements of results that were not kept": lambda out: _kernels.measure(
        vector(), [vector()], Vector(out), sums(), None
    ),
    "measurements with a reference of another length": lambda out: _kernels.measure(
        vector(5), [vector()], kept(), sums(), None
    ),
    "measurements of models of another length": lambda out: _kernels.measure(
        vector(), [vector(5)], kept(), sums(), None
    ),
    "measurements into too little": lambda out: _kernels.measure(
        vector(), [vector()] * 2, kept(), sums(), None
    ),
    "measurements with what is written of other elements": lambda out: _kernels.measure(
        vector(), [vector()], kept(), sums(), np.zeros(3, np.float32)
    ),
    "measurements with what is written in float64": lambda out: _kernels.measure(
        vector(), [vector()], kept(), sums(), np.zeros(2)
    ),
    "measurements of too many blocks": lambda out: _kernels.measure(
        vector(), [vector()], kept(4, 2), sums(), None
    ),
    # Kinds
    "an array for a vector": lambda out: _kernels.round_to(np.zeros(4), Vector(out)),  # type: ignore[arg-type]
    "a list for an array": lambda out: Vector([0.0] * 4),
    "text for a weight": lambda out: _kernels.weighted_sum([vector()], ["1"], Vector(out)),  # type: ignore[list-item]
    "integers for float32": lambda out: Vector(out.view(np.int32)),
    "float64 for float32": lambda out: Vector(np.zeros(4)),
    "swapped bytes": lambda out: Vector(out.astype(">f4")),
    "every other element": lambda out: Vector(out[::2]),
    "elements that are not aligned": lambda out: Vector(
        np.zeros(17, np.uint8)[1:].view(np.float32)
    ),
    "a variance that is not float32": lambda out: _kernels.variance([vector()], vector(4, BF16)),
    "memory that cannot be written": lambda out: _kernels.round_to(vector(), frozen()),
    "float32 for the sums of measurements": lambda out: _kernels.measure(
        vector(), [vector()], kept(), sums().astype(np.float32), None
    ),
    "exact results in float64": lambda out: Vector(
        np.zeros(4, np.float32), F32, None, np.zeros(1), 4, 1
    ),
    "exact results that cannot be written": lambda out: Vector(
        np.zeros(4, np.float32), F32, None, frozen(1).data, 4, 1
    ),
    # Bases
    "measurements of differences": lambda out: _kernels.measure(
        vector(), [delta()], kept(), sums(), None
    ),
    "measurements from a difference": lambda out: _kernels.measure(
        delta(), [vector()], kept(), sums(), None
    ),
    "exact results of a difference": lambda out: Vector(
        np.zeros(4, np.float32), F32, vector(), out[:1], 4, 1
    ),
    "a difference as the result": lambda out: _kernels.round_to(
        vector(), Vector(out).less(vector())
    ),
    "a difference as the base": lambda out: vector().less(delta()),
    "differences from another base": lambda out: _kernels.add_mean_change(
        vector(), [delta()], [1.0], 0.0, Vector(out)
    ),
    "a plain vector for a difference": lambda out: _kernels.add_voted_sum(
        vector(), [vector()], [1.0], [0.0], 1, 1.0, Vector(out)
    ),
    "differences from several bases": lambda out: _kernels.variance(
        [delta(), delta()], Vector(out)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_changes_nothing(compiled: str, name: str) -> None:
    around = np.full(40, 7.0, np.float32)
    with pytest.raises((TypeError, ValueError)):
        CALLS[name](around[16:20])
    assert (around == 7.0).all()


def test_each_kernel_has_a_wrong_call() -> None:
    """The wrong calls of `hash_blocks` and `read_ranges` are in the tests of these kernels."""
    source = Path(__file__).read_text(encoding="utf-8")
    kernels = {name for name in dir(_kernels) if inspect.isbuiltin(getattr(_kernels, name))}
    assert len(kernels) > 20
    assert kernels - set(re.findall(r"_kernels\.(\w+)\(", source)) == {
        *("hash_blocks", "read_ranges"),
        *("instruction_sets", "use"),  # which have no arguments in memory
    }


def test_counts_are_numbers_of_python_whatever_their_size() -> None:
    """The counts of blocks with more than 2^31 equal elements once were negative."""
    some = Vector(np.array([0, 0, 1, 0, 1], np.float32))
    found = _kernels.equal_counts(some, False, 0, 3)
    assert found == [2, 1] and {type(count) for count in found} == {int}
    above, keys, counts, ends = _kernels.keys_in_bracket(some, False, 0, 0, 5)
    assert (above, type(above), ends) == (2, int, [1])
    assert np.frombuffer(keys, np.uint32).tolist() == [0]
    assert np.frombuffer(counts, np.uint32).tolist() == [3]
    counted = np.empty((1, 1, 2), np.int64)
    _kernels.count_changes([some], 0.5, 5, counted)
    assert counted.tolist() == [[[2, 2]]]
    with pytest.raises(TypeError):  # its sums are of 64 bits, which int32 cannot hold
        _kernels.count_changes([some], 0.5, 5, counted.astype(np.int32))


def test_a_vector_keeps_its_memory() -> None:
    numbers = bytearray(16)
    held = Vector(np.frombuffer(numbers, np.float32))
    with pytest.raises(BufferError):
        numbers.extend(b"more")
    assert len(held) == 4
