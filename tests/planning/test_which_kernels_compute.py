"""Promise: torch is loaded, and counted, where the compiled kernels cannot compute a tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from made_up_plans import llama, plan, units

from resumerge.methods import METHODS
from resumerge.native import instruction_set
from resumerge.planning import Plan
from resumerge.planning.backend import block_cost, is_compiled, needs_torch, rounds_operand
from resumerge.planning.plan import Operand
from resumerge.sources.tokenizers.row_map import RowMap, Rows

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"
NORM = "model.norm.weight"

compiled_only = pytest.mark.skipif(instruction_set() is None, reason="needs compiled kernels")


def merged(said: str = "", *dtypes: str, recipe: str = LINEAR) -> Plan:
    first, second = dtypes or ("F32", "F32")
    return plan(recipe + said, llama("a", dtype=first), llama("b", dtype=second))


@compiled_only
@pytest.mark.parametrize(
    ("found", "compiled"),
    [
        (merged(), True),
        (merged("", "BF16", "F16"), True),
        (merged("", "F32", "F64"), False),
        (merged("out_dtype: float64"), False),
        (merged("dtype: float64"), False),
        (merged("dtype: float64\nout_dtype: float32"), False),
        (merged("dtype: bfloat16"), True),
        (merged("", "F8_E4M3", "F8_E4M3"), False),
        (merged(recipe=LINEAR.replace("linear", "iso_c") + "base_model: a\n"), False),
    ],
)
def test_what_the_compiled_kernels_compute(found: Plan, compiled: bool) -> None:
    unit = units(found)[NORM]
    method = METHODS[unit.expression.method]
    assert is_compiled(unit, found.seed) is compiled
    assert needs_torch(found) is not compiled
    assert block_cost(unit, 0) is (method.compiled_cost if compiled else method.torch_cost)


def test_copying_needs_no_torch_on_any_device() -> None:
    copied = plan(COPY, llama("a"))
    assert not needs_torch(copied) and not needs_torch(copied, "cuda")
    assert not any(is_compiled(unit, 0) for unit in copied.units)


@compiled_only
def test_another_device_needs_torch() -> None:
    assert not needs_torch(merged()) and needs_torch(merged(), "cuda")


def test_an_adapter_needs_torch_though_the_rest_is_copied() -> None:
    adapted = replace(plan(COPY, llama("a")), sources=(replace(llama("a"), kind="lora"),))
    assert needs_torch(adapted)


def test_one_tensor_that_is_not_compiled_is_enough() -> None:
    found = merged()
    odd = merged("out_dtype: float64").units[-1]
    assert needs_torch(replace(found, units=(*found.units[:-1], odd)))


def test_without_the_library_nothing_is_compiled(use_kernels: Callable[[str], None]) -> None:
    use_kernels("torch")
    found = merged()
    assert needs_torch(found) and not is_compiled(found.units[0], 0)


def test_rows_that_move_are_gathered_by_torch() -> None:
    found = merged()
    unit = found.units[0]
    operand = unit.expression.operands[0]
    rows = RowMap(Rows.__new__(Rows), ((0, operand.tensor),))
    moved = replace(
        unit, expression=replace(unit.expression, operands=(replace(operand, rows=rows),))
    )
    assert not is_compiled(moved, 0)


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
    ],
)
def test_an_operand_is_rounded_where_its_values_may_change(
    dtype: str, cast: str | None, rounds: bool
) -> None:
    tensor = llama("a", dtype=dtype).tensors[NORM]
    assert rounds_operand(Operand(0, tensor), cast) is rounds
