"""A block has the same bits, whether kernels for any processor or torch compute it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from both_ways import (
    DTYPES,
    LENGTHS,
    agree,
    base_of,
    both,
    masks,
    runs,
    same,
    task_vectors,
    varied,
    vectors,
)
from hypothesis import given
from hypothesis import strategies as st
from kernel_oracles import ORACLES, TORCH, tensor_of
from vector_runs import part_of, runs_of, scanned

from resumerge import kernels
from resumerge.kernels import BlockRun, Key
from resumerge.native import BF16, F16, F32, KINDS, Vector, _kernels

FACTORS = st.floats(-2, 2)


def test_every_kernel_has_an_oracle() -> None:
    functions = {name for name in dir(_kernels) if callable(getattr(_kernels, name))}
    others = {"Vector", "hash_blocks", "instruction_sets", "read_ranges", "use"}
    assert functions - others == set(ORACLES)


@varied
@given(st.data())
def test_weighted_sum(compiled: str, data: st.DataObject) -> None:
    terms = data.draw(task_vectors())
    weights = [data.draw(FACTORS) for _ in terms]
    dtype = data.draw(DTYPES)
    agree(lambda out: kernels.weighted_sum(terms, weights, out), len(terms[0]), dtype)


@varied
@given(st.data())
def test_gram(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    run = data.draw(runs(len(some[0])))
    assert same(*both(lambda: kernels.gram(some, run)))


@varied
@given(st.data())
def test_distance(compiled: str, data: st.DataObject) -> None:
    first, second = vectors(data.draw, 2, data.draw(LENGTHS))
    if data.draw(st.booleans()):
        first = second
    found, expected = both(lambda: kernels.distance(first, second))
    assert same(*(np.array([*d.squares, d.square, d.largest]) for d in (found, expected)))
    assert found.differing == expected.differing


@varied
@given(st.data())
def test_absolute_sums(compiled: str, data: st.DataObject) -> None:
    for vector in data.draw(task_vectors()):
        mask, run = data.draw(masks(len(vector))), data.draw(runs(len(vector)))
        assert same(*both(lambda: kernels.l1_norms(vector, mask, run)))  # noqa: B023


@varied
@given(st.data())
def test_each_block_of_a_run_is_reduced_by_itself(data: st.DataObject) -> None:
    some = data.draw(task_vectors().filter(lambda found: len(found[0]) > 0))
    mask, run = data.draw(masks(len(some[0]))), data.draw(runs(len(some[0])))

    def reduced(vectors: list[Vector], kept: np.ndarray | None, run: BlockRun) -> list[np.ndarray]:
        return [
            kernels.gram(vectors, run),
            kernels.column_gram(vectors, 1, run),
            kernels.count_changes(vectors, 0.1, run),
            kernels.sums_of_squares(vectors, kept, run),
            kernels.l1_norms(vectors[0], kept, run),
        ]

    whole = reduced(some, mask, run)
    for number, part in enumerate(run.blocks()):
        size = part.stop - part.start
        kept = None if mask is None else mask[part]
        base = part_of(base_of(some), part)
        here = [part_of(Vector(v.data, v.dtype), part).less(base) for v in some]
        alone = reduced(here, kept, BlockRun(0, size, size))
        assert all(same(x[number : number + 1], y) for x, y in zip(whole, alone))


@varied
@given(st.data())
def test_task_vectors(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    base, length, dtype = base_of(some), len(some[0]), data.draw(DTYPES)
    kept = [data.draw(masks(length)) for _ in some]
    rest: dict[str, Any] = {
        "masks": kept,
        "factors": [data.draw(FACTORS) for _ in some],
        "divisor_weights": [data.draw(FACTORS) for _ in some],
        "elect_signs": data.draw(st.booleans()),
        "normalize": data.draw(st.booleans()),
        "scale": data.draw(FACTORS),
    }
    agree(lambda out: kernels.add_task_vectors(base, some, **rest, out=out), length, dtype)


@varied
@given(st.data())
def test_a_sum_is_added_to_a_base(compiled: str, data: st.DataObject) -> None:
    some, scale, dtype = data.draw(task_vectors()), data.draw(FACTORS), data.draw(DTYPES)
    base, length = base_of(some), len(some[0])
    plain = [Vector(v.data, v.dtype) for v in some]
    agree(lambda out: kernels.add_sum(base, [*some, *plain], scale, out), length, dtype)


def a_key(vector: Vector, key: Key) -> st.SearchStrategy[int]:
    """Draw one of the keys of a vector; equal keys count once."""
    keys = np.unique(kernels.keys_of(vector, key))
    return st.integers(0, len(keys) - 1).map(lambda place: int(keys[place]))


@varied
@given(st.data())
def test_a_threshold_keeps_what_its_mask_keeps(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors().filter(lambda found: len(found[0]) > 0))
    length = len(some[0])
    rules = [
        (
            data.draw(a_key(v, Key.MAGNITUDE)),
            data.draw(st.integers(0, 3) | st.integers(0, length)),
        )
        for v in some
    ]
    kept = [np.empty(length, np.uint8) for _ in some]
    for vector, rule, mask in zip(some, rules, kept):
        _kernels.mask_above(vector, False, *rule, mask)
    rest: dict[str, Any] = {
        "factors": [1.0] * len(some),
        "divisor_weights": [0.5] * len(some),
        "elect_signs": True,
        "normalize": True,
        "scale": 1.0,
    }
    add = partial(kernels.add_task_vectors, base_of(some), some, **rest)
    found, expected = (Vector(np.empty(length, np.float32)) for _ in range(2))
    add(masks=rules, out=found)
    add(masks=kept, out=expected)
    assert same(found.data, expected.data)
    agree(lambda out: add(masks=rules, out=out), length, F32)


@varied
@given(st.data())
def test_selection(compiled: str, data: st.DataObject) -> None:
    """A run of several blocks gives the same masks as one block at a time."""
    [vector, *_] = data.draw(task_vectors().filter(lambda some: len(some[0]) > 0))
    length, key = len(vector), data.draw(st.sampled_from(Key))
    size = data.draw(st.integers(max(1, length // 5), length))
    counts = sorted(data.draw(st.integers(0, length)) for _ in range(2))

    def selected(together: int) -> list[bytes]:
        [found] = kernels.select(
            {0: counts}, length, scanned({0: vector}, size, together), key
        ).values()
        return [
            b"".join(
                selection.mask(part_of(vector, part), run, key).tobytes()
                for part, run in runs_of(length, size, together)
            )
            for selection in found
        ]

    found, expected = both(lambda: selected(1))
    assert found == expected
    assert selected(data.draw(st.integers(2, 6))) == expected


@varied
@given(st.data())
def test_keys(compiled: str, data: st.DataObject) -> None:
    for vector in data.draw(task_vectors()):
        for key in Key:
            found, expected = both(lambda: kernels.keys_of(vector, key))  # noqa: B023
            np.testing.assert_array_equal(found, expected)
        assert len(set(both(lambda: kernels.count_nonzero(vector)))) == 1  # noqa: B023


@varied
@given(st.data())
def test_keys_are_counted(compiled: str, data: st.DataObject) -> None:
    [vector, *_] = data.draw(task_vectors().filter(lambda some: len(some[0]) > 0))
    key, block = data.draw(st.sampled_from(Key)), data.draw(runs(len(vector))).size
    some = a_key(vector, key)
    low, high = sorted([data.draw(some), data.draw(some | st.integers(0, 2**32 - 1))])
    for compute in (
        lambda: _kernels.keys_in_bracket(vector, key.value, low, high, block),
        lambda: _kernels.equal_counts(vector, key.value, low, block),
    ):
        found, expected = both(compute)
        assert found == expected


@varied
@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1) | st.integers(0, 9), st.integers(0, 2**32 - 1))),
    st.data(),
)
def test_a_key_of_a_rank(compiled: str, some: list[tuple[int, int]], data: st.DataObject) -> None:
    keys, counts = np.array(some, np.uint32).reshape(-1, 2).T.copy()
    elements = int(counts.sum(dtype=np.int64))
    rank = data.draw(
        st.integers(-1, elements + 1) | st.sampled_from([0, 1, elements, elements + 1])
    )
    found, expected = both(partial(_kernels.key_of_rank, keys, counts, rank))
    assert found == expected
    assert (found is not None) == (1 <= rank <= elements)


@pytest.mark.parametrize("dtype", sorted(TORCH))
def test_rounding_of_every_kind_of_number(compiled: str, dtype: int) -> None:
    """The numbers are all 16-bit ones, those half-way between them, and the neighbours of those."""
    half = np.arange(1 << 16, dtype=np.uint16)
    for halves in (torch.float16, torch.bfloat16):
        exact = torch.from_numpy(half).view(halves).float().numpy().view(np.uint32)
        middle = (exact.astype(np.int64) + np.roll(exact, -1)) // 2
        bits = np.concatenate([exact, *(middle + d for d in (-1, 0, 1))]).astype(np.uint32)
        values = Vector(bits.view(np.float32))
        agree(lambda out: kernels.round_to(values, out), len(bits), dtype)  # noqa: B023


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_what_torch_rounds_is_rounded_so(compiled: str, dtype: int) -> None:
    """The oracle of rounding is torch itself, but for NaN."""
    values = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)) * 3000
    out = Vector(np.empty(len(values), KINDS[dtype]), dtype)
    kernels.round_to(Vector(values.numpy()), out)
    assert torch.equal(tensor_of(out), values.to(TORCH[dtype]).float())


def test_a_float_of_8_bits_without_infinity_saturates_and_has_one_nan(compiled: str) -> None:
    numbers = [448.0, 464.0, 465.0, 1e9, -1e9, np.inf, -np.inf, np.nan, -np.nan]
    out = Vector(np.empty(len(numbers), np.uint8), _kernels.F8_E4M3)
    kernels.round_to(Vector(np.array(numbers, np.float32)), out)
    assert out.data.tolist() == [0x7E] * 4 + [0xFE, 0x7E, 0xFE, 0x7F, 0x7F]


@pytest.mark.parametrize("dtype", [code for code in TORCH if KINDS[code] == np.uint16])
def test_reading_every_16_bit_number(compiled: str, dtype: int) -> None:
    half = Vector(np.arange(1 << 16, dtype=np.uint16), dtype)
    assert same(widened(half), tensor_of(half).numpy())


def widened(vector: Vector) -> np.ndarray:
    """Return the numbers of a vector as a kernel reads them."""
    return kernels.weighted_sum([vector], [1.0], kernels.new_vector(len(vector))).data


@pytest.mark.parametrize("dtype", [code for code in TORCH if KINDS[code] == np.uint8])
def test_reading_every_8_bit_number(compiled: str, dtype: int) -> None:
    quarter = Vector(np.arange(1 << 8, dtype=np.uint8), dtype)
    assert same(widened(quarter), tensor_of(quarter).numpy())
