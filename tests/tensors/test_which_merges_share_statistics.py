"""Promise: merges share what was counted of their operands only if it is the same for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from resumerge.tensors import Merged, Rounded, Stored

A, B, C = (Stored(name, "F32", (4, 3), "f", 0) for name in "abc")
MERGED = Merged(
    name="m",
    dtype="F32",
    shape=(4, 3),
    method="ties",
    operands=(A, B),
    params={"normalize": True, "lambda": 1.0},
    per_operand=({}, {"weight": 1.0, "density": 0.5}),
    base=0,
    seed=0,
    block_elements=6,
)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "n"},
        {"shape": (3, 4)},
        {"method": "dare_ties"},
        {"operands": (A, C)},
        {"operands": (A, Rounded.of(B, "BF16", as_input=True))},
        {"per_operand": ({}, {"weight": 1.0, "density": 0.25})},
        {"params": {"normalize": True, "lambda": 1.0, "rescale": True}},
        {"base": 1},
        {"seed": 1},
        {"block_elements": 3},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_decides_them_tells_them_apart(other: dict[str, Any]) -> None:
    assert replace(MERGED, **other).statistics_key != MERGED.statistics_key


def test_types_that_inputs_are_rounded_to_tell_them_apart() -> None:
    keys = {
        replace(MERGED, operands=(A, Rounded.of(B, dtype, as_input=True))).statistics_key
        for dtype in ("BF16", "F16")
    }
    assert len(keys) == 2


def test_what_is_only_computed_with_does_not() -> None:
    """A weight and the type of the output are used only to compute."""
    weighted = ({}, {"weight": 2.0, "density": 0.5})
    other = replace(MERGED, dtype="BF16", models=("a", "b"), per_operand=weighted)
    assert other.statistics_key == MERGED.statistics_key
