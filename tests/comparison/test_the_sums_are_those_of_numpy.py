"""Promise: norms, cosines, counts and conflicts of signs are those that NumPy computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared import as_stored, changed, compare, drawn, flat, pair, write

from resumerge.comparison import tensor as pieces

CLOSE = {"rel": 1e-6, "abs": 1e-9}


def close(value: float) -> Any:
    return pytest.approx(value, **CLOSE)


def figures(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    """Return the figures that a comparison of two arrays must find."""
    a, b = first.ravel().astype(np.float64), second.ravel().astype(np.float64)
    change, norm = np.linalg.norm(b - a), np.linalg.norm(a)
    return {
        "elements": len(a),
        "differing": int((a != b).sum()),
        "l2": close(change),
        "relative_l2": close(change / norm),
        "max_abs": close(np.abs(b - a).max()),
        "cosine": close(a @ b / norm / np.linalg.norm(b)),
    }


def found(group: dict[str, Any]) -> dict[str, Any]:
    names = ("elements", "differing", "l2", "relative_l2", "max_abs", "cosine")
    return {name: group[name] for name in names}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_of_each_tensor_layer_and_kind(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks end inside rows, and pieces have few elements."""
    monkeypatch.setattr(pieces, "AT_ONCE", 100)
    monkeypatch.setattr(pieces, "PIECE_ELEMENTS", 256)
    base = drawn()
    tuned = changed(base, 1) | {"model.norm.weight": base["model.norm.weight"]}
    a, b = write(tmp_path / "a", base, dtype), write(tmp_path / "b", tuned, dtype)
    one = {name: as_stored(array, dtype) for name, array in base.items()}
    two = {name: as_stored(array, dtype) for name, array in tuned.items()}
    document = pair(tmp_path, a, b)
    for tensor in document["tensors"]:
        name = tensor["name"]
        assert found(tensor) == figures(one[name], two[name]), name
    assert found(document["total"]) == figures(flat(one), flat(two))
    layers = {layer["layer"]: layer for layer in document["by_layer"]}
    assert list(layers) == ["model.embed_tokens", "0", "1", "2", "3", "lm_head", "model.norm"]
    third = {name: array for name, array in one.items() if ".layers.2." in name}
    assert found(layers["2"]) == figures(flat(third), flat({n: two[n] for n in third}))
    kinds = {kind["kind"]: kind for kind in document["by_kind"]}
    ups = {name: array for name, array in one.items() if "up_proj" in name}
    assert found(kinds["mlp.up_proj"]) == figures(flat(ups), flat({n: two[n] for n in ups}))
    assert layers["model.norm"]["relations"] == {"equal": 1}


def test_of_task_vectors_of_one_base(tmp_path: Path) -> None:
    base = drawn()
    models = [base, *(changed(base, seed) for seed in (1, 2, 3))]
    models[3] |= {name: base[name] for name in base if "layers.1." in name}
    paths = [write(tmp_path / str(n), arrays) for n, arrays in enumerate(models)]
    document = compare(tmp_path, *paths[1:], base=paths[0])
    assert [(p["first"], p["second"]) for p in document["pairs"]] == [
        *((0, 1), (0, 2), (0, 3)),
        *((1, 2), (1, 3)),
    ]
    vectors = document["task_vectors"]

    def check(group: dict[str, Any], part: str) -> None:
        names = [name for name in base if part in name]
        tasks = [flat({n: arrays[n] - base[n] for n in names}) for arrays in models[1:]]
        for i, one in enumerate(tasks):
            assert group["norms"][i] == close(np.linalg.norm(one))
            for j, two in enumerate(tasks):
                norms = np.linalg.norm(one) * np.linalg.norm(two)
                assert group["cosine"][i][j] == (close(one @ two / norms) if norms else None)
                both = int(((one != 0) & (two != 0)).sum())
                opposed = int((one * two < 0).sum())
                conflict = opposed / both if both else None
                assert group["sign_conflict"][i][j] == (None if i == j else conflict)
                assert i == j or group["both_changed"][i][j] == both

    assert vectors["models"] == [1, 2, 3]
    check(vectors, "")
    layers = {layer["layer"]: layer for layer in vectors["by_layer"]}
    check(layers["1"], "layers.1.")
    check(layers["3"], "layers.3.")


def test_numbers_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    base = drawn()
    a, b = write(tmp_path / "a", base), write(tmp_path / "b", changed(base, 1))
    assert compare(tmp_path, a, b, threads=1) == compare(tmp_path, a, b, threads=4)


def test_what_is_not_finite_is_counted_and_left_out(tmp_path: Path) -> None:
    base = drawn()
    broken = {name: array.copy() for name, array in base.items()}
    name = "model.layers.1.mlp.up_proj.weight"
    broken[name][3, 4:6] = np.nan, np.inf
    document = pair(tmp_path, write(tmp_path / "a", base), write(tmp_path / "b", broken))
    [tensor] = [t for t in document["tensors"] if t["name"] == name]
    assert tensor["relation"] == "not finite" and tensor["details"] == {"elements": 2}
    assert tensor["max_abs"] == 0 and tensor["cosine"] == close(1)
    assert any("NaN or infinite" in said and name in said for said in document["findings"])
    assert document["relation"] == "different"


def test_integers_are_compared_as_they_are(tmp_path: Path) -> None:
    name = "model.layers.0.counts"
    one = drawn() | {name: np.arange(12, dtype=np.int64)}
    two = drawn() | {name: np.arange(12, dtype=np.int64) // 8 * 8}
    document = pair(tmp_path, write(tmp_path / "a", one), write(tmp_path / "b", two))
    [tensor] = [t for t in document["tensors"] if t["name"] == name]
    assert (tensor["differing"], tensor["cosine"]) == (10, None)
    assert document["total"]["relations"] == {"equal": 39, "different": 1}


def test_an_empty_tensor_is_equal(tmp_path: Path) -> None:
    arrays = drawn() | {"model.nothing": np.zeros((0, 4), np.float32)}
    document = pair(tmp_path, write(tmp_path / "a", arrays), write(tmp_path / "b", arrays))
    assert document["relation"] == "copy"
    assert document["total"]["tensors"] == len(arrays)
