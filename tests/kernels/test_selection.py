"""Order statistics and bands equal those of a sorted whole, whatever a sample says."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from vector_runs import runs_of, scanned

from resumerge.kernels import (
    Band,
    Key,
    MapFunction,
    Scan,
    float_of_key,
    keys_of,
    order_statistics,
    select,
    select_largest,
)
from resumerge.kernels.selection.bracket_keys import BracketKeys
from resumerge.native import Vector

FLOATS = hnp.arrays(np.float32, st.integers(1, 80), elements=st.floats(width=32, allow_nan=False))
FEW = hnp.arrays(np.float32, st.integers(1, 80), elements=st.sampled_from([0.0, -0.0, 1.0, -2.0]))


def scanner(values: np.ndarray, size: int, together: int = 1) -> Scan[Any]:
    return scanned({0: Vector(values)}, size, together)


def applied(chosen: Any, values: np.ndarray, size: int, together: int = 1) -> np.ndarray:
    parts = [
        chosen.mask(Vector(values[where]), run)
        for where, run in runs_of(len(values), size, together)
    ]
    return np.where(np.concatenate(parts), values, np.float32(0))


def by_rank(values: np.ndarray, first: int, last: int) -> np.ndarray:
    chosen = np.argsort(-np.abs(values), kind="stable")[first:last]
    result = np.zeros_like(values)
    result[chosen] = values[chosen]
    return result


@given(FLOATS | FEW, st.data())
def test_a_band_lies_between_two_ranks(values: np.ndarray, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(values)))
    first = data.draw(st.integers(0, len(values)))
    last = data.draw(st.integers(first, len(values)))
    together = data.draw(st.integers(1, 5))
    scan = scanner(values, size, together)
    [found] = select({0: (last, first)}, len(values), scan).values()
    expected = by_rank(values, first, last)
    np.testing.assert_array_equal(applied(Band(*found), values, size, together), expected)


@given(FLOATS | FEW, st.data())
def test_order_statistics_of_signed_numbers(values: np.ndarray, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(values)))
    k = data.draw(st.integers(1, len(values)))
    [[key]] = order_statistics({0: (k,)}, len(values), scanner(values, size), Key.NUMBER).values()
    assert float_of_key(key) == np.sort(values)[len(values) - k]


def test_nan_is_above_every_number_whatever_its_sign() -> None:
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000], np.uint32)
    keys = keys_of(Vector(bits.view(np.float32)), Key.NUMBER)
    assert keys[0] == keys[1] > keys[2] > keys[3]


@pytest.mark.parametrize("share", [1e-5, 0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("kind", ["normal", "bfloat16", "by block", "misleading"])
def test_large_vectors(kind: str, share: float) -> None:
    """A sample says where to look in so large a vector; a sample that misleads is noticed."""
    size, blocks = 1 << 14, 20
    values = np.random.default_rng(0).standard_normal(size * blocks).astype(np.float32)
    if kind == "bfloat16":
        values = torch.from_numpy(values).bfloat16().float().numpy()
    if kind == "by block":
        values *= np.repeat(np.arange(blocks, dtype=np.float32), size)
    if kind == "misleading":
        values.reshape(blocks, size)[:, : size // 16] *= 1000
    k = int(share * len(values))
    for together in (1, 3):
        scan = scanner(values, size, together)
        [selection] = select_largest({0: k}, len(values), scan).values()
        found = applied(selection, values, size, together)
        np.testing.assert_array_equal(found, by_rank(values, 0, k))


def test_two_scans_are_enough_where_the_sample_is_fair() -> None:
    values = np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)
    scans = []

    def counting(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
        scans.append(sample)
        return scanner(values, 1 << 14)(function, sample)

    select_largest({0: 1 << 17}, len(values), counting)
    assert scans == [True, False]


@pytest.mark.parametrize("most", [0, 100, 1 << 20])
def test_no_more_than_so_many_keys_are_collected(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histograms find the rank if a bracket contains more keys than may be collected."""
    monkeypatch.setattr("resumerge.kernels.selection.bracket_keys.MOST_COLLECTED", most)
    held = []
    add = BracketKeys.add

    def watched(self: BracketKeys, *found: Any) -> None:
        add(self, *found)
        held.append(len(self))

    monkeypatch.setattr(BracketKeys, "add", watched)
    values = np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)
    [selection] = select_largest({0: 1 << 16}, len(values), scanner(values, 1 << 14)).values()
    np.testing.assert_array_equal(applied(selection, values, 1 << 14), by_rank(values, 0, 1 << 16))
    assert max(held) <= most
    assert (max(held) > 0) == (most == 1 << 20)
