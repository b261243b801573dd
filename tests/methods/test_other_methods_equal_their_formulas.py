"""The other methods, streamed over blocks, equal their formulas over whole tensors in float64."""

from collections.abc import Callable, Sequence
from pathlib import Path

import more_oracles as oracles
import numpy as np
import pytest
from array_merges import NAMES, fine_tuned, merged, recipe, shaped

from resumerge.methods import METHODS

Array = np.ndarray
Oracle = Callable[[Array, Sequence[Array]], Array]
TWO = ({"weight": 0.3}, {"weight": 0.9})
THREE = ({"weight": 0.5}, {"weight": -0.2}, {"weight": 1.5})
SPARSE = (
    {"weight": 0.3, "density": 0.4, "gamma": 0.1},
    {"weight": -0.9, "density": 0.7, "gamma": 0.5},
    {"weight": 1.0, "density": 1.0, "gamma": 0.3},
)
NONE = ({}, {}, {})


def weights(models: Sequence[dict[str, float]]) -> list[float]:
    return [model["weight"] for model in models]


def crumbs(base: Array, x: Sequence[Array], **given: bool) -> Array:
    densities = [model["density"] for model in SPARSE]
    gammas = [model["gamma"] for model in SPARSE]
    return oracles.breadcrumbs(base, x, weights(SPARSE), densities, gammas, **given)


CASES: dict[str, tuple[str, Oracle]] = {
    "nuslerp": (recipe("nuslerp", TWO), lambda b, x: oracles.nuslerp(x, weights(TWO))),
    "nuslerp of task vectors": (
        recipe("nuslerp", TWO, base=True),
        lambda b, x: oracles.nuslerp(x, weights(TWO), base=b),
    ),
    "nuslerp by row": (
        recipe("nuslerp", TWO, nuslerp_flatten=False),
        lambda b, x: oracles.nuslerp(x, weights(TWO), False),
    ),
    "nuslerp by column": (
        recipe("nuslerp", TWO, nuslerp_flatten=False, nuslerp_row_wise=True),
        lambda b, x: oracles.nuslerp(x, weights(TWO), False, True),
    ),
    "nuslerp of task vectors by column": (
        recipe("nuslerp", TWO, base=True, nuslerp_flatten=False, nuslerp_row_wise=True),
        lambda b, x: oracles.nuslerp(x, weights(TWO), False, True, base=b),
    ),
    "nuslerp with cancelling weights": (
        recipe("nuslerp", ({"weight": 1}, {"weight": -1})),
        lambda b, x: oracles.nuslerp(x, (1, -1)),
    ),
    "multislerp": (recipe("multislerp", THREE), lambda b, x: oracles.multislerp(x, weights(THREE))),
    "multislerp of task vectors": (
        recipe("multislerp", THREE, base=True, normalize_weights=False),
        lambda b, x: oracles.multislerp(x, weights(THREE), False, b),
    ),
    "multislerp of one": (
        recipe("multislerp", ({"weight": 0.3},), base=True),
        lambda b, x: oracles.multislerp(x, [0.3], base=b),
    ),
    "karcher": (recipe("karcher", NONE), lambda b, x: oracles.karcher(x)),
    "karcher with few steps": (
        recipe("karcher", NONE, max_iter=1, tol=0.01),
        lambda b, x: oracles.karcher(x, 1, 0.01),
    ),
    "breadcrumbs": (recipe("breadcrumbs", SPARSE, base=True), crumbs),
    "breadcrumbs rescaled": (
        recipe("breadcrumbs", SPARSE, base=True, rescale=True, normalize=True),
        lambda b, x: crumbs(b, x, rescale=True, normalize=True),
    ),
    "breadcrumbs_ties": (
        recipe("breadcrumbs_ties", SPARSE, base=True, rescale=True),
        lambda b, x: crumbs(b, x, signs=True, rescale=True),
    ),
    "sce": (recipe("sce", NONE, base=True), oracles.sce),
    "sce of some": (
        recipe("sce", NONE, base=True, select_topk=0.3),
        lambda b, x: oracles.sce(b, x, 0.3),
    ),
    "model_stock": (recipe("model_stock", NONE, base=True), oracles.model_stock),
    "model_stock by row": (
        recipe("model_stock", NONE, base=True, filter_wise=True),
        lambda b, x: oracles.model_stock(b, x, True),
    ),
    "nearswap": (
        recipe("nearswap", ({},), base=True, t=0.05),
        lambda b, x: oracles.nearswap(b, x[0], 0.05),
    ),
    "nearswap of nothing": (recipe("nearswap", ({},), base=True, t=0), lambda b, x: b),
    "ram": (
        recipe("ram", NONE, base=True, epsilon=0.1),
        lambda b, x: oracles.ram(b, x, 0.1),
    ),
    "ramplus_tl": (
        recipe("ramplus_tl", NONE, base=True, epsilon=0.1, r=0.5, alpha=0.7),
        lambda b, x: oracles.ramplus(b, x, 0.5, 0.7, 0.1),
    ),
    "trimmed_mean": (
        recipe("trimmed_mean", NONE, trim=0.4),
        lambda b, x: oracles.trimmed_mean(x, 0.4),
    ),
    "trimmed_mean of two": (
        recipe("trimmed_mean", NONE[:2]),
        lambda b, x: oracles.trimmed_mean(x, 0.5),
    ),
    "trimmed_mean of all": (
        recipe("trimmed_mean", NONE, trim=0),
        lambda b, x: oracles.trimmed_mean(x, 0),
    ),
    "consensus_ta": (
        recipe("consensus_ta", THREE, base=True, threshold=0.6, **{"lambda": 0.7}),
        lambda b, x: oracles.consensus_ta(b, x, weights(THREE), [0.6] * 3, 2, 0.7),
    ),
    "consensus_ta of one": (
        recipe("consensus_ta", TWO[:1], base=True),
        lambda b, x: oracles.consensus_ta(b, x, [0.3], [0.4]),
    ),
    "iso_c": (
        recipe("iso_c", THREE, base=True),
        lambda b, x: oracles.iso_c(b, x, weights(THREE)),
    ),
    "della of whole task vectors": (
        recipe("della", [{**model, "density": 1} for model in THREE], base=True),
        lambda b, x: oracles.breadcrumbs(
            b, x, weights(THREE), (1, 1, 1), (0, 0, 0), normalize=True, signs=True
        ),
    ),
    "della_linear of nothing": (
        recipe("della_linear", [{**model, "density": 0} for model in THREE], base=True),
        lambda b, x: b,
    ),
}


@pytest.mark.parametrize("block", [64, 100, 1 << 18])
@pytest.mark.parametrize("case", CASES)
def test_equals_its_formula(
    case: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", block)
    text, oracle = CASES[case]
    base = shaped(0)
    models = {name: fine_tuned(base, seed) for seed, name in enumerate(NAMES[:3], start=1)}
    got = merged(tmp_path, text, {"base": base, **models})
    count = text.count('"model"')
    for name, array in base.items():
        if not array.size:
            assert got[name].shape == array.shape
            continue
        want = oracle(array, [model[name] for model in list(models.values())[:count]])
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("block", [64, 1 << 18])
def test_arcee_fusion_takes_the_important_elements(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importances are float32 as in mergekit: an element at the threshold may go the other way."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", block)
    random = np.random.default_rng(0)
    base = {"x": random.standard_normal((200, 30)).astype(np.float32)}
    other = {"x": base["x"] + random.standard_normal((200, 30)).astype(np.float32)}
    got = merged(tmp_path, recipe("arcee_fusion", ({},), base=True), {"base": base, "a": other})
    want = oracles.arcee_fusion(base["x"], other["x"])
    differs = ~np.isclose(got["x"], want, rtol=1e-5, atol=1e-6)
    assert differs.sum() <= 2
    assert 0 < (got["x"] != base["x"]).mean() < 0.3


def test_every_method_is_compared_with_a_formula() -> None:
    """The test files of formulas together name every method."""
    texts = [path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*formula*.py")]
    assert len(texts) > 2
    assert [name for name in METHODS if f'"{name}"' not in "".join(texts)] == []
