"""`select_largest` keeps exactly the k largest magnitudes, the first of equal ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from vector_runs import runs_of, scanned

from resumerge.kernels import Selection, select_largest
from resumerge.native import Vector

FLOAT32 = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(width=32, allow_nan=False))
FEW_VALUES = hnp.arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.sampled_from([0.0, -0.0, 0.5, -0.5, 1e-45, 3.4e38, np.inf, -np.inf, np.nan]),
)


def applied(selection: Selection, values: np.ndarray, size: int) -> np.ndarray:
    """Apply a selection to a vector, from the last block to the first."""
    result = np.zeros_like(values)
    for part, run in reversed(list(runs_of(len(values), size))):
        mask = selection.mask(Vector(values[part]), run)
        result[part] = np.where(mask, values[part], np.float32(0))
    return result


def kept(values: np.ndarray, k: int, size: int) -> np.ndarray:
    [selection] = select_largest({0: k}, len(values), scanned({0: Vector(values)}, size)).values()
    return applied(selection, values, size)


def by_sorting(values: np.ndarray, k: int) -> np.ndarray:
    """Select by sorting all elements: by magnitude, NaN before infinity, then by index."""
    order = sorted(range(len(values)), key=lambda i: (not np.isnan(values[i]), -abs(values[i]), i))
    result = np.zeros_like(values)
    result[order[:k]] = values[order[:k]]
    return result


@given(FLOAT32 | FEW_VALUES, st.data())
def test_equals_a_full_sort(values: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)), "k")
    size = data.draw(st.integers(1, len(values)), "block")
    np.testing.assert_array_equal(kept(values, k, size), by_sorting(values, k))


def test_of_equal_magnitudes_the_first_k_are_kept_whatever_the_blocks() -> None:
    values = np.ones(100, np.float32)
    values[::2] = -1
    for k in (0, 1, 49, 50, 99, 100):
        for size in (7, 33, 50, 100):
            got = kept(values, k, size)
            np.testing.assert_array_equal(got[:k], values[:k])
            assert not got[k:].any()


def test_the_number_kept_is_exact_among_many_ties() -> None:
    values = np.random.default_rng(0).integers(-3, 4, 5003).astype(np.float32)
    nonzero = int(np.count_nonzero(values))
    for k in (1, 17, 2000, nonzero - 1, nonzero, 5003):
        assert np.count_nonzero(kept(values, k, 1000)) == min(k, nonzero)


def test_magnitudes_that_differ_in_the_last_bit_are_told_apart() -> None:
    values = np.ones(10, np.float32)
    values[3] = np.nextafter(np.float32(1), np.float32(2))
    assert np.flatnonzero(kept(values, 1, 4)).tolist() == [3]


def test_several_vectors_are_selected_from_in_one_pass() -> None:
    random = np.random.default_rng(0)
    arrays = {i: random.standard_normal(100).astype(np.float32) for i in (0, 2)}
    vectors = {i: Vector(values) for i, values in arrays.items()}
    both = select_largest({0: 10, 2: 90}, 100, scanned(vectors, 30))
    for i, k in {0: 10, 2: 90}.items():
        alone = kept(arrays[i], k, 100)
        np.testing.assert_array_equal(applied(both[i], arrays[i], 30), alone)
