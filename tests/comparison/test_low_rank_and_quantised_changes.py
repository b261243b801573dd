"""Promise: a change of low rank and a round trip over a quantised type are found, with numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared import Arrays, as_stored, changed, drawn, pair, write
from tiny_models import LLAMA

from resumerge.host import blas

WIDE = {
    **LLAMA,
    "hidden_size": 256,
    "intermediate_size": 320,
    "num_hidden_layers": 2,
    "head_dim": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def with_lora(arrays: Arrays, rank: int, size: float, seed: int = 5) -> dict[str, np.ndarray]:
    """Return arrays with ``size * B @ A`` added to every matrix of a layer."""
    draw = np.random.default_rng(seed)
    merged = dict(arrays)
    for name, array in arrays.items():
        if "_proj" in name:
            rows, columns = array.shape
            b, a = draw.standard_normal((rows, rank)), draw.standard_normal((rank, columns))
            merged[name] = (array + size * b @ a).astype(np.float32)
    return merged


def matrices(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [tensor for tensor in found["tensors"] if "_proj" in tensor["name"]]


@pytest.mark.parametrize("rank", [1, 8, 16, 32])
@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e-4), ("bfloat16", 1e-3)])
def test_a_merged_lora_adapter(rank: int, dtype: str, size: float, tmp_path: Path) -> None:
    base = drawn(config=WIDE)
    a = write(tmp_path / "a", base, dtype, WIDE)
    base = {name: as_stored(array, dtype) for name, array in base.items()}
    b = write(tmp_path / "b", with_lora(base, rank, size), dtype, WIDE)
    found = pair(tmp_path, a, b)
    assert found["relation"] == "low-rank change"
    assert found["total"]["relations"] == {"equal": 7, "low rank": 14}
    details = [tensor["details"] for tensor in matrices(found)]
    assert {detail["rank"] for detail in details} == {rank}
    assert min(detail["energy"] for detail in details) > (0.999 if dtype == "float32" else 0.7)
    [said] = [sentence for sentence in found["findings"] if "low rank" in sentence]
    assert f"a change of low rank: rank {rank}, with " in said
    assert said.startswith("14 of 21 tensors are in ")


def test_a_small_adapter_of_which_rounding_took_much(tmp_path: Path) -> None:
    base = {name: as_stored(a, "bfloat16") for name, a in drawn(config=WIDE).items()}
    a = write(tmp_path / "a", base, "bfloat16", WIDE)
    b = write(tmp_path / "b", with_lora(base, 8, 3e-5), "bfloat16", WIDE)
    found = pair(tmp_path, a, b)
    details = [tensor["details"] for tensor in matrices(found)]
    assert {detail["rank"] for detail in details} == {8}
    energies = [detail["energy"] for detail in details]
    assert 0.3 < min(energies) < 0.95 and all(detail["rounding"] for detail in details)
    assert "rounding may have made the rest" in found["findings"][1]


def test_the_energy_is_that_of_the_singular_values(tmp_path: Path) -> None:
    """A change that has a low rank only in part is reported as different, not as an adapter."""
    base = drawn(config=WIDE)
    mixed = changed(with_lora(base, 4, 1e-3), 2, 1e-3)
    a, b = write(tmp_path / "a", base, config=WIDE), write(tmp_path / "b", mixed, config=WIDE)
    found = pair(tmp_path, a, b)
    assert found["total"]["relations"] == {"different": 21}


def test_a_fine_tune_is_of_no_low_rank_and_on_no_grid(tmp_path: Path) -> None:
    base = drawn(config=WIDE)
    for dtype in ("float32", "bfloat16", "float16"):
        a = write(tmp_path / "a", base, dtype, WIDE)
        b = write(tmp_path / "b", changed(base, 1, 1e-3), dtype, WIDE)
        assert pair(tmp_path, a, b)["total"]["relations"] == {"different": 21}, dtype


def test_a_few_elements_are_of_no_low_rank(tmp_path: Path) -> None:
    """A change of 16 elements has a rank of at most 16, but is no adapter."""
    base = drawn(config=WIDE)
    few = {name: array.copy() for name, array in base.items()}
    for array in few.values():
        if array.ndim == 2:
            array[:: len(array) // 16][np.arange(16), np.arange(16)] += 0.01
    a, b = write(tmp_path / "a", base, config=WIDE), write(tmp_path / "b", few, config=WIDE)
    found = pair(tmp_path, a, b)
    assert "low rank" not in found["total"]["relations"]
    assert found["total"]["relations"]["different"] >= 14


def test_numpy_computes_in_the_threads_of_the_comparison_alone() -> None:
    """NumPy has as many threads after the comparison as before."""
    libraries = [
        (lib, name) for lib in blas._loaded() for name in blas._NAMES if blas._has(lib, name)
    ]
    if not libraries:
        pytest.skip("NumPy has another BLAS than OpenBLAS")

    def threads() -> set[int]:
        return {getattr(library, name.format("get"))() for library, name in libraries}

    before = threads()
    with blas.one_blas_thread():
        assert threads() == {1}
    assert threads() == before


def quantised(
    array: np.ndarray, steps: int, group: int, *, symmetric: bool = True, least: int | None = None
) -> np.ndarray:
    """Return numbers after a round trip over a grid for each group of a row."""
    grouped = array.reshape(-1, group or array.shape[1]).astype(np.float64)
    if symmetric:
        step = np.abs(grouped).max(axis=1, keepdims=True) / steps
        codes = np.clip(np.rint(grouped / step), -steps if least is None else least, steps)
        return (codes * step).reshape(array.shape).astype(np.float32)
    low = np.minimum(grouped.min(axis=1, keepdims=True), 0)
    step = (grouped.max(axis=1, keepdims=True) - low) / steps
    zero = np.rint(-low / step)
    codes = np.clip(np.rint(grouped / step) + zero, 0, steps)
    return ((codes - zero) * step).reshape(array.shape).astype(np.float32)


@pytest.mark.parametrize(
    ("grid", "steps", "group", "symmetric"),
    [
        ("int8", 127, 0, True),
        ("int8", 127, 64, True),
        ("int4", 7, 0, True),
        ("int4", 7, 32, True),
        ("uint8", 255, 0, False),
        ("uint4", 15, 64, False),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_round_trip(
    grid: str, steps: int, group: int, symmetric: bool, dtype: str, tmp_path: Path
) -> None:
    base = {name: as_stored(array, dtype) for name, array in drawn(config=WIDE).items()}
    back = {
        name: quantised(array, steps, group, symmetric=symmetric) if "_proj" in name else array
        for name, array in base.items()
    }
    a, b = write(tmp_path / "a", base, dtype, WIDE), write(tmp_path / "b", back, dtype, WIDE)
    for found, of_first in ((pair(tmp_path, a, b), True), (pair(tmp_path, b, a), False)):
        assert found["relation"] == "quantisation round trip", found["findings"]
        details = [tensor["details"] for tensor in matrices(found)]
        assert {(d["grid"], d["group"], d["of_first"]) for d in details} == {
            (grid, group, of_first)
        }
        assert min(d["nearest"] for d in details) > 0.99
        by = f"groups of {group}" if group else "row"
        said = f"in {b} on a grid of {grid} by {by}, as quantising {a} and back gives"
        assert any(said in sentence for sentence in found["findings"])


def test_grids_of_another_model_are_no_round_trip(tmp_path: Path) -> None:
    """The numbers of one model are on a grid, but are not those of the other model."""
    back = {
        name: quantised(array, 127, 0) if "_proj" in name else array
        for name, array in drawn(9, config=WIDE).items()
    }
    a, b = (
        write(tmp_path / "a", drawn(config=WIDE), config=WIDE),
        write(tmp_path / "b", back, config=WIDE),
    )
    assert "quantised" not in pair(tmp_path, a, b)["total"]["relations"]
