"""Promise: where a formula has no value (opposites, infinity, nothing) a rule gives one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tensor_sets import merged, write

from resumerge.methods.averages.model_stock import share_of_mean
from resumerge.methods.spherical.karcher import factors

NORMAL = np.random.default_rng(7).standard_normal((4, 60)).astype(np.float32)
TWO = "models: [{model: a}, {model: b}]\n"


def merge(folder: Path, recipe: str, **models: np.ndarray) -> np.ndarray:
    tensors = {name: {"x": array.astype(np.float32)} for name, array in models.items()}
    return merged(write(folder, **tensors), recipe, folder / "out")["x"]


# Model stock


def gram(*vectors: object) -> np.ndarray:
    stacked = np.array(vectors, np.float64)
    with np.errstate(invalid="ignore"):
        return stacked @ stacked.T


@pytest.mark.parametrize(
    ("vectors", "expected"),
    [
        (([1, 0], [0, 1]), 0.0),
        (([1, 0], [3, 0]), 1.0),
        (([1, 0], [1, 1]), 2 * 0.5**0.5 / (1 + 0.5**0.5)),
        (([1, 0], [-1, 0]), 0.0),
        (([2, 0], [-1, 0]), 0.0),
        (([1, 0, 0], [0, 1, 0], [0, 0, 1]), 0.0),
        (([1, 0], [1, 0], [0, 1]), 3 / 3 / (1 + 2 / 3)),
        (([0, 0], [0, 0]), 0.0),
        (([1e-4, 0], [1e-4, 0]), 2 * 0.01 / 1.01),
        (([1e-3, 0], [1e-3, 0]), 1.0),
        (([math.nan, 0], [1, 1]), 1.0),
        (([math.inf, 0], [1, 1]), 1.0),
        (([math.inf, 0], [-math.inf, 1]), 1.0),
        (([1, 0], [-1, 0], [math.nan, 0]), 1.0),
    ],
)
def test_the_share_of_the_mean(vectors: tuple[list[float], ...], expected: float) -> None:
    assert share_of_mean(gram(*vectors)) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_each_row_has_its_share() -> None:
    rows = [
        gram([1, 0], [0, 1]),
        gram([math.nan, 0], [0, 1]),
        gram([1, 0], [-1, 0]),
        gram([1], [1]),
    ]
    assert share_of_mean(np.stack(rows, -1)).tolist() == [0.0, 1.0, 0.0, 1.0]


STOCK = "merge_method: model_stock\nbase_model: base\n" + TWO


def test_with_what_is_not_finite_model_stock_is_the_mean(tmp_path: Path) -> None:
    base, a, b = NORMAL[:3].copy()
    a[5], b[9] = math.nan, math.inf
    got = merge(tmp_path, STOCK, base=base, a=a, b=b)
    rest = np.delete(np.arange(60), [5, 9])
    np.testing.assert_allclose(got[rest], ((a + b) / 2)[rest], rtol=1e-5, atol=1e-6)
    assert math.isnan(got[5]) and got[9] == math.inf


def test_where_the_models_cancel_model_stock_is_the_base(tmp_path: Path) -> None:
    base, delta = np.zeros(60), NORMAL[0]
    assert not merge(tmp_path, STOCK, base=base, a=base + delta, b=base - delta).any()


# SCE


def sce(base: np.ndarray, *models: np.ndarray, shares: list[float]) -> np.ndarray:
    """Return what SCE gives with these shares of the models."""
    deltas = [model.astype(np.float64) - base for model in models]
    with np.errstate(invalid="ignore"):
        signs = [(d >= 0) == (sum(deltas) >= 0) for d in deltas]
        above = sum(s * w * d for s, w, d in zip(signs, shares, deltas))
        below = sum(s * w for s, w in zip(signs, shares))
        return base + np.where(below > 0, above / np.where(below > 0, below, 1), 0)


SCE = "merge_method: sce\nbase_model: base\n" + TWO


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_with_infinite_energy_the_models_have_equal_shares(tmp_path: Path, value: float) -> None:
    base, a, b = NORMAL[:3].copy()
    a *= 3
    a[5] = value
    got = merge(tmp_path, SCE, base=base, a=a, b=b)
    rest = np.delete(np.arange(60), 5)
    np.testing.assert_allclose(
        got[rest], sce(base, a, b, shares=[0.5, 0.5])[rest], rtol=1e-5, atol=1e-6
    )
    assert got[5] == value


def test_with_infinite_energy_in_both_too(tmp_path: Path) -> None:
    base, a, b = NORMAL[:3].copy()
    a *= 3
    a[5], b[6] = math.inf, math.inf
    got = merge(tmp_path, SCE, base=base, a=a, b=b)
    rest = np.delete(np.arange(60), [5, 6])
    np.testing.assert_allclose(
        got[rest], sce(base, a, b, shares=[0.5, 0.5])[rest], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("size", "equal"), [(1e-4, True), (1e-2, False)])
def test_with_nearly_no_energy_the_models_have_equal_shares(
    tmp_path: Path, size: float, equal: bool
) -> None:
    base = np.zeros(60, np.float32)
    a, b = 3 * size * NORMAL[1], size * NORMAL[2]
    energies = [float(np.mean(np.square(x, dtype=np.float64))) for x in (a, b)]
    shares = [0.5, 0.5] if equal else [energy / sum(energies) for energy in energies]
    got = merge(tmp_path, SCE, base=base, a=a, b=b)
    np.testing.assert_allclose(got, sce(base, a, b, shares=shares), rtol=1e-5, atol=1e-10)


# Karcher


def unit(*vectors: object) -> list[np.ndarray]:
    return [np.array(v, np.float64) / np.linalg.norm(v) for v in vectors]  # type: ignore[call-overload]


@pytest.mark.parametrize("beyond", [0, 2**-53, 2**-52, 2**-50, 4e-15])
def test_of_two_opposite_models_the_first_counts(beyond: float) -> None:
    """A sine that only rounding leaves, where the cosine is about -1, is no direction."""
    products = np.array([[4.0, 4.0 * (beyond - 1)], [4.0 * (beyond - 1), 4.0]])
    assert factors(products, 10, 1e-5).tolist() == [1.0, 0.0]


def test_of_two_nearly_opposite_models_the_middle_is_found() -> None:
    angle = math.pi - 1e-4
    a, b = np.array([1, 0]), np.array([math.cos(angle), math.sin(angle)])
    found = factors(gram(a, b), 50, 1e-9) @ np.array([a, b])
    np.testing.assert_allclose(found, [math.cos(angle / 2), math.sin(angle / 2)], atol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_model_opposite_to_the_centre_has_no_influence(sign: int) -> None:
    """The fourth model is opposite to the centre of three models around the first axis."""
    around = [[1, 0.3, 0, 0], [1, -0.15, 0.26, 0], [1, -0.15, -0.26, 0]]
    x, y, z = unit(*around)
    centre = unit(x + y + z)[0]
    tilted = -centre + sign * 1e-9 * np.array([0, 0, 0, 1.0])
    found = factors(gram(x, y, z, tilted / np.linalg.norm(tilted)), 10, 1e-5)
    assert abs(found[3]) < 0.6
    result = found @ np.array([x, y, z, tilted])
    np.testing.assert_allclose(result / np.linalg.norm(result), centre, atol=1e-3)


def test_what_is_a_right_angle_away_is_pulled_and_what_is_close_is_not() -> None:
    a, b = unit([1, 0], [0, 1])
    np.testing.assert_allclose(factors(gram(a, b), 10, 1e-5), [0.5**0.5] * 2)
    almost = unit([1, 1e-9])[0]
    np.testing.assert_allclose(factors(gram(a, almost), 10, 1e-5).sum(), 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_with_what_is_not_finite_the_karcher_mean_is_the_mean(value: float) -> None:
    assert factors(gram([1, value], [1, 0], [0, 1]), 10, 1e-5).tolist() == [1 / 3] * 3


def test_models_without_a_direction_have_no_influence_but_on_the_length() -> None:
    assert factors(gram([3, 0], [0, 0]), 10, 1e-5).tolist() == [0.5, 0.0]
    assert factors(gram([3, 0], [1e-6, 0]), 10, 1e-5).tolist() == [0.5 * (3 + 1e-6) / 3, 0.0]
    assert factors(gram([0, 0], [0, 0]), 10, 1e-5).tolist() == [0.0, 0.0]
    assert factors(gram([0, 0], [0, 5], [0, 0]), 10, 1e-5) == pytest.approx([0, 1 / 3, 0])


@pytest.mark.parametrize("steps", [0, 1, 10])
def test_a_model_of_zeros_changes_no_direction(steps: int) -> None:
    x, y, z = unit([1, 0, 0], [0.8, 0.6, 0], [0, 0.6, 0.8])
    without = factors(gram(x, y, z), steps, 1e-9)
    found = factors(gram([0, 0, 0], x, y, z), steps, 1e-9)
    np.testing.assert_allclose(found, [0, *(without * 3 / 4)], rtol=1e-12)
    assert factors(gram([0, 0], [2, 0], [-2, 0]), steps, 1e-5).tolist() == [0, 2 / 3, 0]


def test_without_steps_it_is_the_mean_of_the_directions() -> None:
    a, b = unit([1, 0], [0.6, 0.8])
    found = factors(gram(2 * a, 4 * b), 0, 1e-5)
    mean = unit(a + b)[0] * 3
    np.testing.assert_allclose(found @ np.array([2 * a, 4 * b]), mean)


def test_steps_end_at_the_tolerance() -> None:
    x, y, z = unit([1, 0, 0], [0.8, 0.6, 0], [0, 0.6, 0.8])
    exact = factors(gram(x, y, z), 200, 1e-14)
    one, two = (factors(gram(x, y, z), steps, 1e-14) for steps in (1, 2))
    assert np.abs(one - exact).max() > np.abs(two - exact).max() > 1e-6
    assert factors(gram(x, y, z), 200, 1.0).tolist() == factors(gram(x, y, z), 0, 1.0).tolist()


# NuSLERP


def nuslerp(folder: Path, first: float, second: float) -> np.ndarray:
    models = f"models: [{{model: a, parameters: {{weight: {first}}}}}, "
    models += f"{{model: b, parameters: {{weight: {second}}}}}]\n"
    folder.mkdir()
    return merge(folder, f"merge_method: nuslerp\n{models}", a=NORMAL, b=NORMAL[::-1])


def test_weights_of_a_negative_sum_divide_as_those_of_a_positive_one(tmp_path: Path) -> None:
    """The second model's share is its part of the sum of the weights, or a half if the sum is 0."""
    negative, positive = nuslerp(tmp_path / "n", -1, -3), nuslerp(tmp_path / "p", 1, 3)
    np.testing.assert_array_equal(negative, positive)
    middle, nothing = nuslerp(tmp_path / "m", 1, 1), nuslerp(tmp_path / "z", 1, -1)
    np.testing.assert_array_equal(nothing, middle)
    assert np.abs(negative - middle).max() > 0.1


# SCE


@pytest.mark.parametrize("topk", [0.1, 0.5, 0.9])
def test_the_share_is_of_elements_that_vary(topk: float, tmp_path: Path) -> None:
    """The models are equal in the other half of the elements."""
    step = np.arange(60, dtype=np.float32)
    one, other = np.ones((4, 60)), np.ones((4, 60))
    other[:2] += (1 + np.stack([step, step + 60])) / 64
    models = "models: [{model: a}, {model: b}]\nbase_model: base\n"
    recipe = f"merge_method: sce\n{models}parameters: {{select_topk: {topk}}}\n"
    out = merge(tmp_path, recipe, base=np.zeros((4, 60)), a=one, b=other).ravel()
    kept = int(topk * 120)
    assert np.flatnonzero(out).tolist() == list(range(120 - kept, 120))
