"""NaN and infinity come out where they went in, and nowhere else."""

import math
from pathlib import Path

import numpy as np
import pytest
from tensor_sets import merged, write

pytestmark = pytest.mark.usefixtures("small_blocks")

SPECIAL = {3: math.nan, 500: math.inf, 1500: -math.inf}
"""The value at each of these indices, in a tensor of two blocks and more."""

MODELS = "models: [{model: a, parameters: {weight: 0.5}}, {model: b, parameters: {weight: 0.5}}]\n"
RECIPES = {
    "linear": "merge_method: linear\n" + MODELS,
    "slerp": "merge_method: slerp\nbase_model: a\nmodels: [{model: a}, {model: b}]\n"
    "parameters: {t: 0.5}\n",
    "task_arithmetic": "merge_method: task_arithmetic\nbase_model: b\n" + MODELS,
    "ties": "merge_method: ties\nbase_model: b\nparameters: {density: 0.5}\n" + MODELS,
    "ties-rescaled": "merge_method: ties\nbase_model: b\n"
    "parameters: {density: 0.5, rescale: true}\n" + MODELS,
    "dare_linear": "merge_method: dare_linear\nbase_model: b\n"
    "parameters: {density: 0.5}\n" + MODELS,
    "dare_linear-dropped": "merge_method: dare_linear\nbase_model: b\n"
    "parameters: {density: 0.01}\n" + MODELS,
    "dare_ties": "merge_method: dare_ties\nbase_model: b\nparameters: {density: 0.5}\n" + MODELS,
    "passthrough": "merge_method: passthrough\nmodels: [{model: a, parameters: {scale: 0.5}}]\n",
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_rest_of_the_tensor_is_finite(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 2001)).astype(np.float32)
    for index, value in SPECIAL.items():
        a[index] = value
    got = merged(write(tmp_path, a={"x": a}, b={"x": b}), RECIPES[name], tmp_path / "out")["x"]
    assert set(np.flatnonzero(~np.isfinite(got))) <= set(SPECIAL)
    if not name.startswith("dare"):  # which may drop them
        assert math.isnan(got[3])
        assert got[500] == math.inf
        assert got[1500] == -math.inf


def test_passthrough_keeps_the_bits_of_every_nan(tmp_path: Path) -> None:
    bits = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0x80000000, 0x00000001], np.uint32)
    write(tmp_path, a={"x": bits.view(np.float32)})
    recipe = "merge_method: passthrough\nmodels: [{model: a}]\n"
    got = merged(tmp_path, recipe, tmp_path / "out")["x"]
    assert got.view(np.uint32).tolist() == bits.tolist()
