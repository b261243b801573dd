"""Linear, SLERP, TIES and DARE, streamed over blocks, equal their formulas over whole tensors.

Each merge covers tensors of no, one and many elements, and of sizes around the block's.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from tensor_sets import Arrays, coarse, merged, normal, ones, write, zeros

pytestmark = pytest.mark.usefixtures("small_blocks")

SEED = 3
Oracle = Callable[[Sequence[np.ndarray]], np.ndarray]


def check(
    tmp_path: Path, recipe: str, inputs: dict[str, Arrays], oracle: Oracle, seed: int = 0
) -> None:
    """Merge, and compare every tensor with the oracle of the same inputs."""
    got = merged(write(tmp_path / "models", **inputs), recipe, tmp_path / "out", seed)
    for name in next(iter(inputs.values())):
        want = oracle([arrays[name] for arrays in inputs.values()])
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name], want, rtol=2e-6, atol=2e-6, err_msg=name)


def recipe(method: str, *models: dict[str, Any], base: str | None = None, **merge: Any) -> str:
    """Return a recipe of models a, b, c… in YAML's flow style, which is JSON's."""
    listed = [{"model": name, "parameters": given} for name, given in zip("abc", models)]
    lines = [f"merge_method: {method}", f"models: {listed}", f"parameters: {merge}"]
    return "\n".join([*lines, f"base_model: {base}"] if base else lines).replace("True", "true")


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("weights", [(1.0,), (0.3,), (0.3, 0.7), (2, -0.5, 0), (1e-3, 5, 40)])
def test_linear(weights: tuple[float, ...], normalize: bool, tmp_path: Path) -> None:
    check(
        tmp_path,
        recipe("linear", *({"weight": w} for w in weights), normalize=normalize),
        {name: normal(i) for i, name in enumerate("abc"[: len(weights)])},
        lambda models: oracles.linear(models, weights, normalize),
    )


@pytest.mark.parametrize("t", [0, 1, 0.5, 0.1, -0.3, 1.4])
def test_slerp(t: float, tmp_path: Path) -> None:
    check(
        tmp_path,
        recipe("slerp", {}, {}, base="a", t=t),
        {"a": normal(1), "b": normal(2)},
        lambda models: oracles.slerp(models[0], models[1], t),
    )


def turned(by: float) -> Arrays:
    """Return the numbers of `normal(1)`, turned by about that angle in radians."""
    return {name: array + by * normal(2)[name] for name, array in normal(1).items()}


OPPOSITE = {name: -2 * array for name, array in normal(1).items()}


@pytest.mark.parametrize(
    "other",
    [normal(1), turned(1e-3), turned(0.02), turned(0.05), OPPOSITE, zeros()],
    ids=["equal", "nearly equal", "below the threshold", "above it", "opposite", "zero"],
)
def test_slerp_where_there_is_hardly_an_angle(other: Arrays, tmp_path: Path) -> None:
    check(
        tmp_path,
        recipe("slerp", {}, {}, base="a", t=0.3),
        {"a": normal(1), "b": other},
        lambda models: oracles.slerp(models[0], models[1], 0.3),
    )


def test_slerp_of_nothing_but_zeros_is_zero(tmp_path: Path) -> None:
    check(
        tmp_path,
        recipe("slerp", {}, {}, base="a", t=0.3),
        {"a": zeros(), "b": zeros()},
        lambda models: models[0],
    )


def test_slerp_counts_from_the_base_wherever_it_is_listed(tmp_path: Path) -> None:
    check(
        tmp_path,
        recipe("slerp", {}, {}, base="b", t=0.2),
        {"a": normal(1), "b": normal(2)},
        lambda models: oracles.slerp(models[1], models[0], 0.2),
    )


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("weights", "scale"), [((0.3, 0.7), 1.0), ((1, -1), 0.5), ((2, 3), -1.5)])
def test_task_arithmetic(
    weights: tuple[float, float], scale: float, normalize: bool, tmp_path: Path
) -> None:
    models = [{"weight": w} for w in weights]
    check(
        tmp_path,
        recipe("task_arithmetic", *models, base="c", normalize=normalize, **{"lambda": scale}),
        {"a": normal(1), "b": normal(2), "c": normal(3)},
        lambda m: oracles.task_arithmetic(m[2], m[:2], weights, scale, normalize),
    )


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("weights", "densities"),
    [
        ((1, 1), (0.3, 0.7)),
        ((0.5, -0.25), (0.5, 0.5)),
        ((0.75, 0.5), (1, 0)),
        ((2, 0), (0.001, 0.999)),
        ((1, -1), (1, 1)),
    ],
)
@pytest.mark.parametrize("numbers", [normal, coarse], ids=["distinct", "ties"])
def test_ties(
    numbers: Callable[[int], Arrays],
    weights: tuple[float, float],
    densities: tuple[float, float],
    normalize: bool,
    rescale: bool,
    tmp_path: Path,
) -> None:
    models = [{"weight": w, "density": d} for w, d in zip(weights, densities)]
    check(
        tmp_path,
        recipe("ties", *models, base="c", normalize=normalize, rescale=rescale, **{"lambda": 0.5}),
        {"a": numbers(1), "b": numbers(2), "c": numbers(3)},
        lambda m: oracles.ties(m[2], m[:2], weights, densities, 0.5, normalize, rescale),
    )


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("densities", [(0.3, 0.7), (0.999, 0.001), (1, 0)])
@pytest.mark.parametrize("method", ["dare_linear", "dare_ties"])
def test_dare(
    method: str,
    densities: tuple[float, float],
    normalize: bool,
    rescale: bool,
    kept: Callable[[tuple[float, float]], list[Arrays]],
    tmp_path: Path,
) -> None:
    weights, scale = (0.5, 0.75), 1.25
    oracle = getattr(oracles, method)
    masks = kept(densities)
    models = [{"weight": w, "density": d} for w, d in zip(weights, densities)]
    check(
        tmp_path,
        recipe(
            method, *models, base="c", normalize=normalize, rescale=rescale, **{"lambda": scale}
        ),
        {"a": normal(1), "b": normal(2), "c": normal(3)},
        lambda m: oracle(
            m[2],
            m[:2],
            weights,
            [mask[f"n{m[0].size}"] for mask in masks],
            scale,
            normalize,
            rescale,
        ),
        SEED,
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[float, float]], list[Arrays]]:
    """Return a function that gives the masks of two models with these densities."""

    @cache
    def made(densities: tuple[float, float]) -> list[Arrays]:
        folder = tmp_path_factory.mktemp("masks")
        return [masks_of(folder / str(i), i, densities, SEED) for i in (0, 1)]

    return made


def masks_of(folder: Path, model: int, densities: tuple[float, float], seed: int) -> Arrays:
    """Return the mask of one of two models: merge ones into zeros, with its weight alone."""
    models = [{"weight": float(i == model), "density": d} for i, d in enumerate(densities)]
    text = recipe("dare_linear", *models, base="c", rescale=False)
    return merged(write(folder, a=ones(), b=ones(), c=zeros()), text, folder / "out", seed)


def test_each_model_tensor_and_seed_has_a_mask_of_its_own(tmp_path: Path) -> None:
    half = (0.5, 0.5)
    first, same, other_model, other_seed = (
        masks_of(tmp_path / str(run), model, half, seed)
        for run, (model, seed) in enumerate([(0, 3), (0, 3), (1, 3), (0, 4)])
    )
    mask = first["n5003"]
    assert np.array_equal(mask, same["n5003"])
    for other in (other_model["n5003"], other_seed["n5003"]):
        assert 0.45 < np.mean(mask == other) < 0.55
    assert 0.4 < np.mean(mask[:1000] == first["n2001"][:1000]) < 0.6


TASK_VECTOR_METHODS = ["task_arithmetic", "ties", "dare_linear", "dare_ties"]


@pytest.mark.parametrize("method", TASK_VECTOR_METHODS)
def test_models_equal_to_the_base_give_the_base(method: str, tmp_path: Path) -> None:
    given = {"weight": 0.7, "density": 0.5} if method != "task_arithmetic" else {"weight": 0.7}
    for rescale in ("", "rescale") if method != "task_arithmetic" else ("",):
        check(
            tmp_path / rescale,
            recipe(method, given, given, base="c", **({rescale: True} if rescale else {})),
            {"a": normal(1), "b": normal(1), "c": normal(1)},
            lambda models: models[2],
        )


@pytest.mark.parametrize("method", TASK_VECTOR_METHODS)
def test_the_base_alone_is_the_base(method: str, tmp_path: Path) -> None:
    check(
        tmp_path,
        recipe(method, {}, base="a"),
        {"a": normal(1)},
        lambda models: models[0],
    )


@pytest.mark.parametrize("method", TASK_VECTOR_METHODS)
def test_one_model_with_density_1_is_that_model(method: str, tmp_path: Path) -> None:
    check(
        tmp_path,
        recipe(method, {"weight": 1}, base="b"),
        {"a": normal(1), "b": normal(2)},
        lambda models: models[0],
    )


@pytest.mark.parametrize("scale", [None, 1, 0.5, 0, -2])
def test_passthrough(scale: float | None, tmp_path: Path) -> None:
    given = {} if scale is None else {"scale": scale}
    check(
        tmp_path,
        recipe("passthrough", given),
        {"a": normal(1)},
        lambda models: oracles.passthrough(models[0], 1.0 if scale is None else scale),
    )
