"""Promise: torch is loaded, and counted, where a method computes with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_plans import llama, plan, units

from resumerge.methods import METHODS, KernelMethod
from resumerge.planning import Plan
from resumerge.planning.backend import (
    computes_with_torch,
    needs_torch,
    rounds_operand,
    uses_torch,
)
from resumerge.planning.plan import Operand

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"
NORM = "model.norm.weight"


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
    unit = units(found)[NORM]
    assert (
        uses_torch(unit)
        is by_torch
        is not isinstance(METHODS[unit.expression.method], KernelMethod)
    )
    assert needs_torch(found) is computes_with_torch(found) is by_torch


def test_copying_needs_no_torch() -> None:
    copied = plan(COPY, llama("a"))
    assert not needs_torch(copied) and not computes_with_torch(copied)


def test_an_adapter_needs_torch_though_no_method_computes_with_it() -> None:
    for recipe, models in ((COPY, "a"), (LINEAR, "ab")):
        models_ = [llama(name) for name in models]
        adapted = replace(plan(recipe, *models_), sources=(replace(models_[0], kind="lora"),))
        assert needs_torch(adapted) and not computes_with_torch(adapted)


def test_one_tensor_that_torch_computes_is_enough() -> None:
    found = merged()
    odd = merged(recipe=LINEAR.replace("linear", "iso_c") + "base_model: a\n").units[-1]
    mixed = replace(found, units=(*found.units[:-1], odd))
    assert needs_torch(mixed) and computes_with_torch(mixed)


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
    tensor = llama("a", dtype=dtype).tensors[NORM]
    assert rounds_operand(Operand(0, tensor), cast) is rounds
