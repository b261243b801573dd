"""Promise: torch is loaded, and counted, where a method computes with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_plans import llama, plan, tensor, units

from resumerge.methods import METHODS, KernelMethod
from resumerge.planning import Plan, estimate
from resumerge.recipe import ModelRef
from resumerge.tensors import Adapted, Merged, rounded_input

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"
NORM = "model.norm.weight"
B = ModelRef("b", "b")


def merged(said: str = "", *dtypes: str, recipe: str = LINEAR) -> Plan:
    first, second = dtypes or ("F32", "F32")
    return plan(recipe + said, llama("a", dtype=first), llama("b", dtype=second))


@pytest.mark.parametrize(
    ("found", "by_torch"),
    [
        (merged(), False),
        (merged("", "BF16", "F16"), False),
        (merged("", "F32", "F64"), False),
        (merged("out_dtype: float64"), False),
        (merged("dtype: float64"), False),
        (merged("dtype: bfloat16"), False),
        (merged("", "F8_E4M3", "F8_E5M2"), False),
        (merged(recipe=LINEAR.replace("linear", "iso_c") + "base_model: a\n"), True),
    ],
)
def test_kernels_compute_every_type_and_torch_what_has_no_kernel(
    found: Plan, by_torch: bool
) -> None:
    merged = units(found)[NORM].expression
    assert isinstance(merged, Merged)
    assert merged.uses_torch is by_torch is not isinstance(METHODS[merged.method], KernelMethod)
    assert estimate(found).time.needs_torch is estimate(found).uses_torch is by_torch


def test_copying_needs_no_torch() -> None:
    copied = plan(COPY, llama("a"))
    assert not estimate(copied).time.needs_torch and not estimate(copied).uses_torch


def test_an_adapter_needs_torch_though_no_method_computes_with_it() -> None:
    a = llama("a")
    weight = a.tensors["lm_head.weight"]
    matrices = (tensor("x", (2, weight.shape[1])), tensor("y", (weight.shape[0], 2)))
    changed = Adapted.of(weight.name, weight, *matrices, 1.0, False, None)
    adapted = replace(a, tensors={**a.tensors, weight.name: changed})
    for recipe, models in ((COPY, [adapted]), (LINEAR, [llama("a"), replace(adapted, ref=B)])):
        found = plan(recipe, *models)
        assert estimate(found).time.needs_torch and not estimate(found).uses_torch


@pytest.mark.parametrize("place", [0, -1])
def test_one_tensor_that_torch_computes_is_enough(place: int) -> None:
    found, odd = merged(), merged(recipe=LINEAR.replace("linear", "iso_c") + "base_model: a\n")
    units = [*found.units]
    units[place] = odd.units[place]
    mixed = replace(found, units=tuple(units))
    assert estimate(mixed).time.needs_torch and estimate(mixed).uses_torch


@pytest.mark.parametrize(
    ("dtype", "cast", "rounds"),
    [
        ("F32", None, False),
        ("F32", "float32", False),
        ("BF16", "float32", False),
        ("BF16", "bfloat16", False),
        ("F32", "bfloat16", True),
        ("F16", "bfloat16", True),
        ("BF16", "float16", True),
        ("F64", "float64", False),
        ("F64", "float32", False),
        ("F64", "bfloat16", True),
        ("F8_E4M3", "float16", True),
    ],
)
def test_an_operand_is_rounded_where_its_values_may_change(
    dtype: str, cast: str | None, rounds: bool
) -> None:
    norm = llama("a", dtype=dtype).tensors[NORM]
    rounded = rounded_input(norm, cast)
    assert (rounded != norm) is rounds
    assert rounded.unrounded == norm
