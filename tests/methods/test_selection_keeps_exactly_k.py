"""`select_largest` keeps exactly the k largest magnitudes, the first of equal ones."""

import numpy as np
import torch
from blocks import by_block, scanned
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from resumerge.kernels import Selection, apply_mask, select_largest

FLOAT32 = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(width=32, allow_nan=False))
FEW_VALUES = hnp.arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.sampled_from([0.0, -0.0, 0.5, -0.5, 1e-45, 3.4e38, np.inf, -np.inf, np.nan]),
)


def applied(selection: Selection, values: Tensor, size: int) -> Tensor:
    return by_block(values, size, lambda v, block: apply_mask(v, selection.mask(v, block)))


def kept(values: Tensor, k: int, size: int) -> Tensor:
    [selection] = select_largest({0: k}, len(values), scanned({0: values}, size)).values()
    return applied(selection, values, size)


def by_sorting(values: np.ndarray, k: int) -> np.ndarray:
    """The same with a sort of the whole: by magnitude, NaN before infinity, then by index."""
    order = sorted(range(len(values)), key=lambda i: (not np.isnan(values[i]), -abs(values[i]), i))
    result = np.zeros_like(values)
    result[order[:k]] = values[order[:k]]
    return result


@given(FLOAT32 | FEW_VALUES, st.data())
def test_equals_a_full_sort(values: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)), "k")
    size = data.draw(st.integers(1, len(values)), "block")
    got = kept(torch.from_numpy(values), k, size).numpy()
    np.testing.assert_array_equal(got, by_sorting(values, k))


def test_of_equal_magnitudes_the_first_k_are_kept_whatever_the_blocks() -> None:
    values = torch.ones(100)
    values[::2] = -1
    for k in (0, 1, 49, 50, 99, 100):
        for size in (7, 33, 50, 100):
            got = kept(values, k, size)
            assert torch.equal(got[:k], values[:k])
            assert not got[k:].any()


def test_the_number_kept_is_exact_among_many_ties() -> None:
    values = torch.randint(-3, 4, (5003,), generator=torch.Generator().manual_seed(0)).float()
    nonzero = int(values.count_nonzero())
    for k in (1, 17, 2000, nonzero - 1, nonzero, 5003):
        assert int(kept(values, k, 1000).count_nonzero()) == min(k, nonzero)


def test_magnitudes_that_differ_in_the_last_bit_are_told_apart() -> None:
    values = torch.full((10,), 1.0)
    values[3] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert kept(values, 1, 4).nonzero().flatten().tolist() == [3]


def test_several_vectors_are_selected_from_in_one_pass() -> None:
    vectors = {i: torch.randn(100, generator=torch.Generator().manual_seed(i)) for i in (0, 2)}
    both = select_largest({0: 10, 2: 90}, 100, scanned(vectors, 30))
    for i, k in {0: 10, 2: 90}.items():
        alone = kept(vectors[i], k, 100)
        assert torch.equal(applied(both[i], vectors[i], 30), alone)
