"""Promise: at the edges of what parameters may be, the documented rule holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from resumerge import kernels
from resumerge.kernels.blocks import Block, BlockRun, sampled
from resumerge.methods import METHODS, KernelMethod, Method, TensorContext, Value
from resumerge.methods.spherical.multislerp import factors as multislerp
from resumerge.methods.task_vectors.ties import elements_to_keep
from resumerge.native import Vector
from resumerge.planning import check_recipe
from resumerge.recipe import parse_recipe


def context(
    params: Mapping[str, Value],
    per_model: Sequence[Mapping[str, Value]],
    base: int | None = None,
    shape: tuple[int, ...] = (4,),
) -> TensorContext:
    return TensorContext(
        shape=shape, params=params, per_model=tuple(per_model), base=base, name="x", seed=0, bits=32
    )


def computed(method: str, asked: TensorContext, *models: Sequence[float]) -> list[float]:
    """Return the one block that a method makes of vectors."""
    arrays = [np.array(values, np.float32) for values in models]
    chosen = METHODS[method]
    if isinstance(chosen, Method):
        tensors = [torch.from_numpy(array) for array in arrays]
        found: list[float] = chosen.block(asked, tensors, Block(0, 0, asked.numel), None).tolist()
        return found
    assert isinstance(chosen, KernelMethod)
    vectors, run = [Vector(array) for array in arrays], BlockRun(0, asked.numel, asked.numel)

    def scan(function: Any, sample: bool = False) -> Iterator[Any]:
        few = BlockRun(0, sampled(run.length), sampled(run.length)) if sample else run
        yield function([Vector(array[: few.length]) for array in arrays], few)

    statistics = chosen.statistics(asked, scan) if chosen.passes(asked) > 1 else None
    out = kernels.new_vector(asked.numel)
    chosen.compute(asked, vectors, run, statistics, out)
    result: list[float] = out.data.tolist()
    return result


# Weights that cancel


@pytest.mark.parametrize(
    ("weights", "normalize", "fits"),
    [
        ((1, -1), True, False),
        ((1, -1), False, True),
        ((0, 0), True, False),
        ((1, -1 + 1e-9), True, False),
        ((1, -1 + 1e-6), True, True),
        ((-1, -1), True, True),
        ((5, 5), True, True),
    ],
)
def test_linear_divides_by_no_sum_that_cancels(
    weights: tuple[float, ...], normalize: bool, fits: bool
) -> None:
    asked = context({"normalize": normalize}, [{"weight": weight} for weight in weights])
    assert (METHODS["linear"].validate(asked) is None) is fits


def test_multislerp_divides_by_no_sum_of_zero() -> None:
    def fits(*weights: float, normalize: bool = True) -> bool:
        given = [{"weight": weight} for weight in weights]
        asked = context({"normalize_weights": normalize, "eps": 1e-8}, given)
        return METHODS["multislerp"].validate(asked) is None

    assert not fits(1, -1) and fits(1, -1, normalize=False) and fits(1, 1)
    assert fits(0), "one model is itself"


# Arcs


def gram(*vectors: object) -> np.ndarray:
    stacked = np.array(vectors, np.float64)
    return stacked @ stacked.T


def test_multislerp_where_there_is_no_direction_is_the_weighted_sum() -> None:
    half = np.array([0.5, 0.5])
    for products in (gram([1, 0], [-1, 0]), gram([0, 0], [0, 0])):
        assert multislerp(products, half, 1e-8).tolist() == [0.5, 0.5]
        assert multislerp(products, half, 0.0).tolist() == [0.5, 0.5]
    odd = gram([1, 0], [0, 1])
    odd[0, 0] = math.inf
    assert multislerp(odd, half, 1e-8).tolist() == [0.5, 0.5]


def test_multislerp_of_equal_models_is_the_model_whatever_eps() -> None:
    half = np.array([0.5, 0.5])
    for eps in (0.0, 1e-8):
        found = multislerp(gram([3, 4], [3, 4]), half, eps)
        assert found.sum() == pytest.approx(1.0, abs=1e-7)


def test_multislerp_keeps_the_weighted_length() -> None:
    weights = np.array([0.25, 0.75])
    a, b = np.array([2.0, 0.0]), np.array([0.0, 6.0])
    first, second = multislerp(gram(a, b), weights, 0.0)
    assert np.linalg.norm(first * a + second * b) == pytest.approx(0.25 * 2 + 0.75 * 6)


def test_multislerp_takes_what_is_shorter_than_eps_for_nothing() -> None:
    half = np.array([0.5, 0.5])
    assert multislerp(gram([1, 0], [-1, 0.1]), half, 0.2).tolist() == [0.5, 0.5]
    weights, vectors, eps = np.array([0.25, 0.75]), np.array([[2.0, 0.0], [0.0, 6.0]]), 0.125
    norms = np.linalg.norm(vectors, axis=1)
    units = vectors / (norms + eps)[:, None]
    middle = weights @ units
    middle /= np.linalg.norm(middle)
    tangent = weights @ (units - np.outer(units @ middle, middle))
    step = np.linalg.norm(tangent) + eps
    expected = (middle * math.cos(step) + tangent * math.sin(step) / step) * (weights @ norms)
    found = multislerp(gram(*vectors), weights, eps)
    np.testing.assert_allclose(found @ vectors, expected, rtol=1e-12)


def test_nuslerp_with_a_model_of_zeros_is_at_a_right_angle() -> None:
    params = {"nuslerp_flatten": True, "nuslerp_row_wise": False}
    asked = context(params, [{"weight": 1.0}, {"weight": 1.0}], shape=(2,))
    found = computed("nuslerp", asked, [0, 0], [1, 0])
    assert found == pytest.approx([math.sin(math.pi / 4), 0])


def test_nuslerp_where_there_is_no_arc_is_straight() -> None:
    def merged(a: list[float], b: list[float], second: float = 1.0) -> list[float]:
        params = {"nuslerp_flatten": True, "nuslerp_row_wise": False}
        asked = context(params, [{"weight": 1.0}, {"weight": second}], shape=(2,))
        return computed("nuslerp", asked, a, b)

    assert merged([1, 0], [-1, 0]) == [0, 0]
    assert merged([2, 0], [2, 0]) == [2, 0]
    assert merged([math.nan, 1], [0, 1])[1] == 1
    middle = 1 / (2 * math.cos(math.pi / 4))
    assert merged([1, 0], [0, 1], -1.0) == pytest.approx([middle, middle]), "weights that cancel"


def test_nuslerps_rows_and_columns() -> None:
    def split(shape: tuple[int, ...], by_column: bool) -> tuple[int, int | None]:
        params = {"nuslerp_flatten": False, "nuslerp_row_wise": by_column}
        asked = context(params, [{"weight": 1.0}] * 2, shape=shape)
        return METHODS["nuslerp"].passes(asked), METHODS["nuslerp"].row_elements(asked)

    assert split((2, 3, 4), False) == (1, 4) and split((2, 3, 4), True) == (2, 12)
    assert split((4,), False) == split((4,), True) == (2, None), "a vector is one"


def test_slerp_of_what_has_no_direction_or_is_no_number() -> None:
    def merged(a: list[float], b: list[float]) -> list[float]:
        return computed("slerp", context({"t": 0.5}, [{}, {}], 0, (2,)), a, b)

    assert merged([math.nan, 1], [3, 2])[1] == 1.5
    right_angle = math.sin(math.pi / 4)
    assert merged([1e-9, 0], [0.6, 0.8]) == pytest.approx([0.6 * right_angle, 0.8 * right_angle])


def test_passthrough_takes_one_model() -> None:
    recipe = "merge_method: passthrough\nmodels: [{model: a}, {model: b}]\n"
    [problem] = check_recipe(parse_recipe(recipe))
    assert problem.what == "passthrough takes exactly 1 model"


def test_slerp_is_straight_where_models_are_nearly_parallel_or_opposite() -> None:
    def factors(cosine: float, t: float = 0.25) -> list[float]:
        a, b = [1.0, 0.0], [cosine, math.sqrt(1 - cosine**2)]
        asked = context({"t": t}, [{}, {}], 0, (2,))
        got = computed("slerp", asked, a, b)
        second = got[1] / b[1]
        return [got[0] - second * b[0], second]

    for cosine in (0.9996, -0.9996):
        assert factors(cosine) == pytest.approx([0.75, 0.25], abs=1e-4)
    for cosine in (0.9990, -0.9990, 0.0):
        angle = math.acos(cosine)
        sines = [math.sin(share * angle) / math.sin(angle) for share in (0.75, 0.25)]
        assert factors(cosine) == pytest.approx(sines, rel=1e-3)


def test_nearswap_moves_by_at_most_t_and_not_at_all_where_t_is_not_positive() -> None:
    base, other = [0.0, 1.0, 2.0, 3.0], [0.5, 1.1, -9.0, 3.0]
    for t in (0.0, -1.0, math.nan):
        for another in (other, [math.nan] * 4):
            assert computed("nearswap", context({"t": t}, [{}, {}], 0), base, another) == base
    moved = computed("nearswap", context({"t": 0.25}, [{}, {}], 0), base, other)
    assert moved == pytest.approx([0.25, 1.1, 1.75, 3.0])


# Counts


@pytest.mark.parametrize(
    ("density", "numel", "kept"),
    [(0.0, 10, 0), (1e-9, 10, 1), (0.19, 10, 1), (0.25, 10, 2), (0.99, 10, 9), (0.5, 1, 1)],
)
def test_ties_keeps_one_at_least(density: float, numel: int, kept: int) -> None:
    assert elements_to_keep(density, numel) == kept


@pytest.mark.parametrize(
    ("trim", "expected"), [(0.0, 31.0), (0.3, 4.0), (0.2, 31.0), (0.5, 4.0), (0.26, 4.0)]
)
def test_what_is_trimmed_is_rounded_down(trim: float, expected: float) -> None:
    values = [[0.0], [3.0], [5.0], [116.0]]
    got = computed("trimmed_mean", context({"trim": trim}, [{}] * 4, shape=(1,)), *values)
    assert got == [expected]


def test_the_median_of_two_is_their_mean() -> None:
    asked = context({"trim": 0.5}, [{}] * 2, shape=(1,))
    assert computed("trimmed_mean", asked, [1.0], [4.0]) == [2.5]


def test_consensus_of_more_than_there_are_is_that_of_all() -> None:
    def merged(agree: int, models: int) -> list[float]:
        given = [{"weight": 1.0, "threshold": 0.5}] * models
        asked = context({"lambda": 1.0, "agree": agree}, [{}, *given], 0, (3,))
        return computed("consensus_ta", asked, [0, 0, 0], *([[1, 2, 0], [1, 0, 0]][:models]))

    assert merged(2, 2) == merged(5, 2) == [2, 0, 0]
    assert merged(1, 2) == [2, 2, 0]
    assert merged(2, 1) == [1, 2, 0], "one alone agrees with itself"
    assert merged(0, 2) == [2, 2, 0]


# Densities


@pytest.mark.parametrize(
    ("density", "epsilon", "fits"),
    [
        (0.5, 0.49, True),
        (0.5, 0.5, False),
        (0.5, -0.5, False),
        (0.25, 0.25, False),
        (0.25, -0.2, True),
        (0.75, 0.25, False),
        (0.75, 0.2, True),
        (0.0, 0.3, True),
        (1.0, 0.3, True),
    ],
)
def test_probabilities_of_della_lie_between_none_and_all(
    density: float, epsilon: float, fits: bool
) -> None:
    asked = context({"rescale": True}, [{}, {"density": density, "epsilon": epsilon}], 0)
    assert (METHODS["della"].validate(asked) is None) is fits


def task_vectors(method: str, density: float, **more: float) -> list[float]:
    given = {"weight": 1.0, "density": density, "epsilon": 0.1, "gamma": 0.0, **more}
    params = {"lambda": 1.0, "normalize": False, "rescale": False, "int8_mask": False}
    asked = context(params, [{}, given], 0)
    return computed(method, asked, [0, 0, 0, 0], [4, 3, 2, 1])


@pytest.mark.parametrize("method", ["ties", "breadcrumbs", "dare_linear", "della", "della_linear"])
def test_a_density_of_nothing_keeps_nothing_and_of_one_everything(method: str) -> None:
    assert task_vectors(method, 0.0) == [0, 0, 0, 0]
    assert task_vectors(method, 1.0) == [4, 3, 2, 1]


def test_ties_rescales_what_has_a_length() -> None:
    def merged(*delta: float) -> list[float]:
        given = {"weight": 1.0, "density": 0.5}
        params = {"lambda": 1.0, "normalize": False, "rescale": True, "int8_mask": False}
        return computed("ties", context(params, [{}, given], 0), [0] * 4, delta)

    assert merged(4, 3, 2, 1) == pytest.approx([4 * 10 / 7, 3 * 10 / 7, 0, 0])
    small = [4e-9, 3e-9, 2e-9, 1e-9]
    assert merged(*small) == pytest.approx([4e-9, 3e-9, 0, 0], rel=1e-6), "too small to tell"
    assert merged(math.inf, 3, 2, 1) == [math.inf, 3, 0, 0]


def test_breadcrumbs_drop_the_largest_and_keep_their_share() -> None:
    assert task_vectors("breadcrumbs", 0.5) == [4, 3, 0, 0]
    assert task_vectors("breadcrumbs", 0.5, gamma=0.25) == [0, 3, 2, 0]
    assert task_vectors("breadcrumbs", 0.5, gamma=0.2) == [4, 3, 0, 0], "of four, not one"
    assert task_vectors("breadcrumbs", 0.5, gamma=1.0) == [0, 0, 2, 1], "as far as it can"
    assert task_vectors("breadcrumbs", 0.2) == [0, 0, 0, 0], "of four, not one"


def test_task_arithmetic_divides_by_the_weights_unless_they_cancel() -> None:
    params = {"lambda": 2.0, "normalize": True, "int8_mask": False}

    def merged(*weights: float) -> list[float]:
        asked = context(params, [{}, *({"weight": w} for w in weights)], 0, (1,))
        return computed("task_arithmetic", asked, [1.0], [3.0], [5.0])

    assert merged(1, 3) == pytest.approx([1 + 2 * (2 + 12) / 4])
    assert merged(-1, -3) == pytest.approx([1 + 2 * (-2 - 12) / -4])
    assert merged(1, -1) == pytest.approx([1 + 2 * (2 - 4)])


def test_ram_scales_up_what_one_alone_changed() -> None:
    def merged(alpha: float, r: float) -> list[float]:
        asked = context({"r": r, "alpha": alpha, "epsilon": 0.1}, [{}, {}, {}], 0)
        return computed("ramplus_tl", asked, [0, 0, 0, 0], [1, 1, 1, 0.05], [3, 0, 0, 0])

    # The first changed one element with the other, and two alone; the other none alone.
    assert merged(9.0, 1.0) == pytest.approx([2, 1.5, 1.5, 0])
    assert merged(0.25, 1.0) == pytest.approx([2, 1.25, 1.25, 0])
    assert merged(-1.0, 1.0) == pytest.approx([2, 0, 0, 0])
    assert merged(9.0, 0.0) == pytest.approx([2, 1, 1, 0])


@pytest.mark.parametrize("method", ["dare_linear", "della"])
def test_each_model_tensor_and_seed_draws_for_itself(method: str) -> None:
    given = {"density": 0.5, "epsilon": 0.1}
    run, delta = BlockRun(0, 400, 400), Vector(np.linspace(1, 2, 400, dtype=np.float32))

    def mask(model: int = 1, name: str = "x", seed: int = 0) -> bytes:
        asked = TensorContext(
            shape=(400,),
            params={"rescale": True},
            per_model=({}, given, given),
            base=0,
            name=name,
            seed=seed,
            bits=32,
        )
        drawn = METHODS[method].mask(asked, model, delta, run, None)  # type: ignore[attr-defined]
        return bytes(drawn)

    assert mask() == mask()
    assert len({mask(), mask(model=2), mask(name="y"), mask(seed=1)}) == 4


@pytest.mark.parametrize(
    "method", ["task_arithmetic", "ties", "consensus_ta", "ram", "ramplus_tl", "sce", "iso_c"]
)
def test_the_base_alone_is_itself(method: str) -> None:
    params = {
        "lambda": 1.0, "normalize": False, "rescale": False, "agree": 2, "epsilon": 0.0,
        "r": 1.0, "alpha": 1.0, "select_topk": 0.5,
    }  # fmt: skip
    assert computed(method, context(params, [{}], 0), [1, -2, 0, 4]) == [1, -2, 0, 4]
