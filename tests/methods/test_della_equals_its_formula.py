"""DELLA's merges equal the formula over whole tensors in float64, with masks from every rank."""

import math
from pathlib import Path

import numpy as np
import oracles
import pytest
from array_merges import NAMES, fine_tuned, merged, recipe, shaped
from rank_masks import dense_mask

from resumerge.kernels import BlockRun

MODELS = (
    {"weight": 0.5, "density": 0.4, "epsilon": 0.3},
    {"weight": 0.9, "density": 0.7, "epsilon": -0.2},
    {"weight": -0.2, "density": 0.5, "epsilon": 0.0},
)
SEED = 11


def mask_of(delta: np.ndarray, number: int, name: str) -> np.ndarray:
    density, reach = MODELS[number]["density"], MODELS[number]["epsilon"]
    row = delta.shape[1] if delta.ndim > 1 else delta.size
    rows = delta.reshape(-1, row, math.prod(delta.shape[2:]))
    run = BlockRun(0, max(1, delta.size), delta.size)
    return dense_mask(rows, density, reach, f"{SEED}/{number}/{name}", run).reshape(delta.shape)


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("method", ["della", "della_linear"])
def test_della(method: str, normalize: bool, rescale: bool, tmp_path: Path) -> None:
    given = {"normalize": normalize, "rescale": rescale, "lambda": 1.25}
    text = recipe(method, MODELS, base=True, **given)
    base = shaped(0)
    tuned = [fine_tuned(base, seed) for seed in (1, 2, 3)]
    got = merged(tmp_path, text, {"base": base, **dict(zip(NAMES, tuned))}, seed=SEED)
    oracle = oracles.dare_ties if method == "della" else oracles.dare_linear
    weights = [model["weight"] for model in MODELS]
    for name, array in base.items():
        if not array.size:
            continue
        models = [tensors[name] for tensors in tuned]
        masks = [mask_of(x - array, number, name) for number, x in enumerate(models)]
        want = oracle(array, models, weights, masks, 1.25, normalize, rescale)
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=2e-6, err_msg=name)
