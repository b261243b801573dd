"""Whatever computes a block, compiled for any processor or torch: the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from both_ways import TORCH, as_tensor, needs_kernels, same, task_vectors, varied
from hypothesis import given
from hypothesis import strategies as st
from resumerge.native.calls import MAGNITUDE, Threshold, mask_above, round_to
from resumerge.native.vector import BF16, F16

from resumerge import kernels
from resumerge.kernels import Block
from resumerge.native import Vector

pytestmark = needs_kernels


@varied
@given(st.data())
def test_weighted_sum(compiled: str, data: st.DataObject) -> None:
    terms = data.draw(task_vectors())
    weights = [data.draw(st.floats(-2, 2)) for _ in terms]
    expected = kernels.weighted_sum([as_tensor(term) for term in terms], weights)
    assert same(kernels.weighted_sum(terms, weights).data, expected.numpy())


@varied
@given(st.data())
def test_gram(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    expected = kernels.gram([as_tensor(vector) for vector in some])
    assert same(kernels.gram(some), expected)


@varied
@given(st.data())
def test_absolute_sums(compiled: str, data: st.DataObject) -> None:
    for vector in data.draw(task_vectors()):
        random = np.random.default_rng(data.draw(st.integers(0, 9)))
        mask = data.draw(st.none() | st.just(random.integers(0, 2, len(vector), np.uint8)))
        expected = kernels.l1_norms(as_tensor(vector), mask)
        assert same(np.array(kernels.l1_norms(vector, mask)), np.array(expected))


@varied
@given(st.data())
def test_combined(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    masks = [
        data.draw(st.none() | st.just(random.integers(0, 2, len(vector), np.uint8)))
        for vector in some
    ]
    factors, weights = ([data.draw(st.floats(-2, 2)) for _ in some] for _ in range(2))
    consensus, normalize = data.draw(st.booleans()), data.draw(st.booleans())
    rest = (masks, factors, weights, consensus, normalize, data.draw(st.floats(-2, 2)))
    assert some[0].base is not None
    expected = kernels.add_task_vectors(
        as_tensor(some[0].base), [as_tensor(v) for v in some], *rest
    )
    assert same(kernels.add_task_vectors(some[0].base, some, *rest).data, expected.numpy())


@varied
@given(st.data())
def test_a_threshold_keeps_what_its_mask_keeps(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors().filter(lambda found: len(found[0]) > 0))
    length = len(some[0])
    rules = [
        Threshold(
            int(data.draw(st.sampled_from(sorted(set(kernels.magnitude_bits(v).tolist()))))),
            data.draw(st.integers(0, 3) | st.integers(0, length)),
        )
        for v in some
    ]
    masks = [mask_above(v, MAGNITUDE, rule.bits, rule.quota) for v, rule in zip(some, rules)]
    rest = ([1.0] * len(some), [0.5] * len(some), True, True, 1.0)
    assert some[0].base is not None
    found = kernels.add_task_vectors(some[0].base, some, rules, *rest)
    assert same(found.data, kernels.add_task_vectors(some[0].base, some, masks, *rest).data)


@varied
@given(st.data())
def test_selection(compiled: str, data: st.DataObject) -> None:
    [vector, *_] = data.draw(task_vectors().filter(lambda some: len(some[0]) > 0))
    length = len(vector)
    size = data.draw(st.integers(max(1, length // 5), length))
    counts = [data.draw(st.integers(0, length)) for _ in range(2)]

    def masks(whole: Vector | torch.Tensor) -> list[bytes]:
        parts = [
            Block(i, start, min(start + size, length))
            for i, start in enumerate(range(0, length, size))
        ]

        def scan(part, sample=False):  # type: ignore[no-untyped-def]
            for block in parts:
                block = block.sample() if sample else block
                yield part({0: _part(whole, block)}, block)

        [found] = kernels.select({0: sorted(counts)}, length, scan).values()
        return [
            selection.mask(_part(whole, block), block).tobytes()
            for selection in found
            for block in parts
        ]

    assert masks(vector) == masks(as_tensor(vector))


@varied
@given(st.data())
def test_keys(compiled: str, data: st.DataObject) -> None:
    for vector in data.draw(task_vectors()):
        for key in (kernels.magnitude_bits, kernels.ordered_bits):
            assert (key(vector) == key(as_tensor(vector))).all()


@pytest.mark.parametrize("dtype", sorted(TORCH))
def test_rounding_of_every_kind_of_number(compiled: str, dtype: int) -> None:
    """All 16-bit numbers, what lies half-way between them, and what lies beside that."""
    half = np.arange(1 << 16, dtype=np.uint16)
    for halves in (torch.float16, torch.bfloat16):
        exact = torch.from_numpy(half).view(halves).float().numpy().view(np.uint32)
        middle = (exact.astype(np.int64) + np.roll(exact, -1)) // 2
        bits = np.concatenate([exact, *(middle + d for d in (-1, 0, 1))]).astype(np.uint32)
        values = torch.from_numpy(bits.view(np.float32))
        expected = values.to(TORCH[dtype])
        out = np.empty(values.numel() * expected.itemsize, np.uint8)
        round_to(Vector(values.numpy()), dtype, out)
        found = torch.from_numpy(out).view(TORCH[dtype])
        assert torch.equal(found.isnan(), values.isnan())
        assert same(found.float().numpy(), expected.float().numpy())
        assert (
            len(found[found.isnan()].view(torch.uint8).view(-1, expected.itemsize).unique(dim=0))
            <= 1
        )


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_reading_every_16_bit_number(compiled: str, dtype: int) -> None:
    half = Vector(np.arange(1 << 16, dtype=np.uint16), dtype)
    assert same(kernels.weighted_sum([half], [1.0]).data, as_tensor(half).numpy())


def _part(whole, block):  # type: ignore[no-untyped-def]
    if isinstance(whole, Vector):
        base = whole.base and _part(whole.base, block)
        return Vector(whole.data[block.start : block.stop], whole.dtype, base)
    return whole[block.start : block.stop].clone()
