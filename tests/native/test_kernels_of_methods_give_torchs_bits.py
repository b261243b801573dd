"""The kernels that only one method needs have the bits of torch, element by element."""

from __future__ import annotations

import re
from pathlib import Path

from both_ways import (
    DTYPES,
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
from kernel_oracles import ORACLES

from resumerge import kernels

FACTORS = st.floats(-2, 2)
SMALL = st.sampled_from([0.0, 1e-8, 1e-5, 0.5, 2.0]) | st.floats(0, 2)
LENGTHS = st.integers(0, 70) | st.sampled_from([1023, 1025, 5000])


@varied
@given(st.data())
def test_clamp_to_distance(compiled: str, data: st.DataObject) -> None:
    length, dtype = data.draw(LENGTHS), data.draw(DTYPES)
    values, middle = vectors(data.draw, 2, length)
    reach = data.draw(st.sampled_from([1e-3, 1.0, 3e38, 1e-45]) | st.floats(1e-6, 4))
    agree(lambda out: kernels.clamp_to_distance(values, middle, reach, out), length, dtype)


@varied
@given(st.data())
def test_mean_changes(compiled: str, data: st.DataObject) -> None:
    some, dtype = data.draw(task_vectors()), data.draw(DTYPES)
    base, rest = base_of(some), (data.draw(SMALL), [data.draw(FACTORS) for _ in some])
    agree(lambda out: kernels.add_mean_change(base, some, *rest, out), len(base), dtype)


@varied
@given(st.data())
def test_counts_of_changes(compiled: str, data: st.DataObject) -> None:
    some, epsilon = data.draw(task_vectors()), data.draw(SMALL)
    run = data.draw(runs(len(some[0])))
    found, expected = both(lambda: kernels.count_changes(some, epsilon, run).tolist())
    assert found == expected


@varied
@given(st.data())
def test_counts_of_conflicts(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    found, expected = both(lambda: kernels.count_conflicts(some).tolist())
    assert found == expected


@varied
@given(st.data())
def test_voted_sum(compiled: str, data: st.DataObject) -> None:
    some, dtype = data.draw(task_vectors()), data.draw(DTYPES)
    weights, thresholds = [[data.draw(s) for _ in some] for s in (FACTORS, SMALL)]
    rest = (weights, thresholds, data.draw(st.integers(0, len(some))), data.draw(FACTORS))
    base = base_of(some)
    agree(lambda out: kernels.add_voted_sum(base, some, *rest, out), len(base), dtype)


@varied
@given(st.data())
def test_trimmed_mean(compiled: str, data: st.DataObject) -> None:
    length, dtype = data.draw(LENGTHS), data.draw(DTYPES)
    some = vectors(data.draw, data.draw(st.integers(1, 9)), length)
    cut = data.draw(st.integers(0, (len(some) - 1) // 2))
    agree(lambda out: kernels.trimmed_mean(some, cut, out), length, dtype)


@varied
@given(st.data())
def test_variance(compiled: str, data: st.DataObject) -> None:
    """Every bit counts, those of NaN too, because variances are keys of a selection."""
    some = data.draw(task_vectors())
    found, expected = both(lambda: kernels.variance(some).data.tobytes())
    assert found == expected


@varied
@given(st.data())
def test_squares(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    mask, run = data.draw(masks(len(some[0]))), data.draw(runs(len(some[0])))
    assert same(*both(lambda: kernels.sums_of_squares(some, mask, run)))


@varied
@given(st.data())
def test_majority_mean(compiled: str, data: st.DataObject) -> None:
    some, dtype = data.draw(task_vectors()), data.draw(DTYPES)
    base, rest = base_of(some), (data.draw(masks(len(some[0]))), [data.draw(SMALL) for _ in some])
    agree(lambda out: kernels.add_majority_mean(base, some, *rest, out), len(base), dtype)


def test_each_oracle_is_used_by_a_test_here() -> None:
    others = {"test_wrong_calls_are_refused.py", "test_whole_numbers_are_numbers.py"}
    tests = [file for file in Path(__file__).parent.glob("test_*.py") if file.name not in others]
    words = {
        word for file in tests for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))
    }
    assert len(ORACLES) > 20
    assert ORACLES.keys() - words == set()
