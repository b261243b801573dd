"""What every method does at the edges: equal models, no change, NaN, one model, any block size."""

import math
from pathlib import Path

import numpy as np
import pytest
from array_merges import NAMES, example, fine_tuned, inputs, merged, recipe, shaped
from hypothesis import given, settings
from hypothesis import strategies as st

from resumerge.methods import METHODS

EQUAL = {f"equal {name}": array for name, array in shaped(1).items()}
ZEROS = {f"zero {name}": np.zeros_like(array) for name, array in shaped(1).items()}
PLACES = {(3, 5): math.nan, (17, 0): math.inf, (17, 39): -math.inf}


@pytest.mark.parametrize("method", METHODS)
def test_equal_models_zeros_and_what_is_not_finite(method: str, tmp_path: Path) -> None:
    """Equal models give themselves, zeros give zeros, NaN and infinity stay where they are."""
    base, a, b = np.random.default_rng(0).standard_normal((3, 30, 40)).astype(np.float32)
    for place, value in PLACES.items():
        a[place] = value
    models = {
        name: {**EQUAL, **ZEROS, "x": array}
        for name, array in {"a": a, "b": b, "base": base}.items()
    }
    text = example(method)
    got = merged(tmp_path, text, inputs(text, **models))
    for name, array in EQUAL.items():  # a product with factors is as near as float32 gets
        np.testing.assert_allclose(got[name], array, rtol=2e-6, atol=1e-7, err_msg=name)
    for name in ZEROS:
        assert not got[name].any(), name
    assert set(zip(*np.nonzero(~np.isfinite(got["x"])))) <= set(PLACES)


BY_ROW = {"nuslerp": {"nuslerp_flatten": False}, "model_stock": {"filter_wise": True}}


@pytest.mark.parametrize("method", BY_ROW)
def test_nan_and_infinity_stay_where_they_are_by_row(method: str, tmp_path: Path) -> None:
    base, a, b = np.random.default_rng(0).standard_normal((3, 30, 40)).astype(np.float32)
    a[3, 5], b[17, 39] = math.nan, math.inf
    text = example(method, **BY_ROW[method])
    got = merged(tmp_path, text, inputs(text, a={"x": a}, b={"x": b}, base={"x": base}))["x"]
    assert set(zip(*np.nonzero(~np.isfinite(got)))) <= {(3, 5), (17, 39)}


RANDOM = ("dare_linear", "dare_ties", "della", "della_linear")
"""The methods whose masks are drawn block by block."""


@pytest.mark.parametrize("method", [m for m in METHODS if not METHODS[m].most and m not in RANDOM])
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 400),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=3)
def test_where_blocks_end_changes_no_more_than_the_last_bits(
    tmp_path_factory: pytest.TempPathFactory,
    method: str,
    shapes: list[list[int]],
    count: int,
    block: int,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)

    def drawn(size: float) -> dict[str, np.ndarray]:
        return {
            f"t{number}": (size * random.standard_normal(shape)).astype(np.float32)
            for number, shape in enumerate(shapes)
        }

    base = drawn(1)
    models = {
        name: {key: base[key] + change for key, change in drawn(0.1).items()}
        for name in NAMES[:count]
    }
    text = example(method, max(count, METHODS[method].fewest - 1))
    names = list(inputs(text, base=base, **dict.fromkeys(NAMES, models["a"])))
    given_models = {n: models.get(n, base if n == "base" else models["a"]) for n in names}
    found = []
    for size in (block, 1 << 18):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", size)
            found.append(merged(tmp_path_factory.mktemp("m"), text, given_models))
    for key, array in base.items():
        assert found[0][key].shape == array.shape
        np.testing.assert_allclose(found[0][key], found[1][key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["della", "della_linear"])
def test_della_keeps_the_larger_ones_more_often(method: str, tmp_path: Path) -> None:
    rows, length = 4000, 8
    base = {"x": np.zeros((rows, length), np.float32)}
    ascending = np.tile(np.arange(1, length + 1, dtype=np.float32), (rows, 1))
    text = recipe(
        method,
        [{"weight": 1.0, "density": 0.5, "epsilon": 0.3}],
        base=True,
        rescale=False,
        normalize=False,
    )
    got = merged(tmp_path, text, {"a": {"x": ascending}, "base": base})["x"]
    kept = (got != 0).mean(axis=0)
    np.testing.assert_allclose(kept, np.linspace(0.2, 0.8, length), atol=0.04)
    assert set(np.unique(got - ascending * (got != 0))) == {0}


def test_della_rescales_to_the_norm_it_had(tmp_path: Path) -> None:
    base = shaped(0)
    tuned = fine_tuned(base, 1)
    text = recipe("della_linear", [{"weight": 1.0, "density": 0.4}], base=True)
    got = merged(tmp_path, text, {"a": tuned, "base": base})
    for name in ("t40x13", "t4x5x6"):
        before = np.abs(tuned[name] - base[name]).sum()
        assert np.abs(got[name] - base[name]).sum() == pytest.approx(before, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            recipe("della", [{"weight": 1, "density": 0.9, "epsilon": 0.1}], base=True),
            "density + epsilon below 1",
        ),
        (recipe("multislerp", [{"weight": 1}, {"weight": -1}]), "do not sum to zero"),
        (recipe("karcher", [{}, {}], max_iter=2.5), "a whole number"),
        (recipe("nuslerp", [{"weight": 1}], base=True), "the base model not counted"),
    ],
)
def test_refuses_what_makes_no_sense(text: str, expected: str, tmp_path: Path) -> None:
    from resumerge.errors import InputError

    arrays = shaped(0)
    with pytest.raises(InputError) as refused:
        merged(tmp_path, text, dict.fromkeys(("a", "b", "base"), arrays))
    assert expected in str(refused.value)
