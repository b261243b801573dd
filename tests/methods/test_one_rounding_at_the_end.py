"""Inputs are rounded to `dtype` first, computing is in float32, the result is rounded once."""

from pathlib import Path

import pytest
import torch
from merging import merge, tensors_of
from tiny_models import write_model
from torch import Tensor

pytestmark = pytest.mark.usefixtures("small_blocks")

FINE = torch.randn(3001, generator=torch.Generator().manual_seed(1))
OTHER = torch.randn(3001, generator=torch.Generator().manual_seed(2))
BODIES = {
    "linear": "models: [{model: a, parameters: {weight: 1}}, {model: b, parameters: {weight: 2}}]",
    "slerp": "base_model: a\nmodels: [{model: b}]\nparameters: {t: 0.3}",
    "ties": "base_model: a\nmodels: [{model: b, parameters: {weight: 0.7, density: 0.4}}]",
    "dare_ties": "base_model: a\nmodels: [{model: b, parameters: {weight: 0.7, density: 0.4}}]",
    "passthrough": "models: [{model: a, parameters: {scale: 0.3}}]",
}


def result(folder: Path, method: str, more: str, **models: Tensor) -> Tensor:
    folder.mkdir()
    for name, tensor in models.items():
        write_model(folder / name, {"x": tensor}, {})
    recipe = f"merge_method: {method}\n{BODIES[method]}\n{more}\n"
    return tensors_of(merge(folder, recipe, folder / "out"))["x"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("method", BODIES)
class TestEveryMethod:
    def test_out_dtype_is_the_float32_result_rounded(
        self, method: str, dtype: str, tmp_path: Path
    ) -> None:
        exact = result(tmp_path / "1", method, "", a=FINE, b=OTHER)
        rounded = result(tmp_path / "2", method, f"out_dtype: {dtype}", a=FINE, b=OTHER)
        assert exact.dtype == torch.float32
        assert torch.equal(rounded, exact.to(getattr(torch, dtype)))

    def test_dtype_rounds_the_inputs_too(self, method: str, dtype: str, tmp_path: Path) -> None:
        as_read = getattr(torch, dtype)
        models = {"a": FINE.to(as_read), "b": OTHER.to(as_read)}
        cast = result(tmp_path / "1", method, f"dtype: {dtype}", a=FINE, b=OTHER)
        stored = result(tmp_path / "2", method, "", **models)
        assert cast.dtype == stored.dtype == as_read
        assert torch.equal(cast, stored)

    def test_narrow_models_are_computed_in_float32(
        self, method: str, dtype: str, tmp_path: Path
    ) -> None:
        models = {"a": FINE.to(getattr(torch, dtype)), "b": OTHER.to(getattr(torch, dtype))}
        narrow = result(tmp_path / "1", method, "out_dtype: float32", **models)
        wide = result(tmp_path / "2", method, "", a=models["a"].float(), b=models["b"].float())
        assert torch.equal(narrow, wide)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float16, torch.float32),
        (torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
    ],
)
def test_without_dtype_the_result_holds_what_the_inputs_can(
    a: torch.dtype, b: torch.dtype, expected: torch.dtype, tmp_path: Path
) -> None:
    got = result(tmp_path / "1", "linear", "", a=FINE.to(a), b=OTHER.to(b))
    assert got.dtype == expected
    torch.testing.assert_close(
        got.double(), (FINE.to(a).double() + 2 * OTHER.to(b).double()) / 3, rtol=8e-3, atol=1e-6
    )


def test_whole_numbers_are_copied_from_the_first_model(tmp_path: Path) -> None:
    counts = torch.arange(2500)
    for name in "ab":
        write_model(tmp_path / name, {"position_ids": counts, "x": FINE}, {})
    recipe = f"merge_method: linear\n{BODIES['linear']}\ndtype: bfloat16\n"
    merged = tensors_of(merge(tmp_path, recipe, tmp_path / "out"))
    assert torch.equal(merged["position_ids"], counts)
    assert merged["position_ids"].dtype == torch.int64
