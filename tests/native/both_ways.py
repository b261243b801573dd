"""Vectors of all kinds, and what the kernels and their oracles make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_oracles import TORCH, computed_by_oracles
from torch import Tensor

from resumerge.kernels import BlockRun
from resumerge.native import KINDS, Vector, instruction_sets

SETS = instruction_sets()

DTYPES = st.sampled_from(sorted(TORCH))
NUMBERS = st.floats(width=32) | st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 1e-8, 65504.0, 2.0**-24, 448.0, 464.0, 465.0, 57344.0, 61440.0]
)

LENGTHS = st.integers(0, 70) | st.sampled_from([1023, 1024, 1025, 5000, 131_073])
varied = settings(
    max_examples=90 // len(SETS),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""A test has 90 draws in all, each of which one instruction set computes."""
Use = Callable[[str], None]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Found = TypeVar("Found")


@st.composite
def task_vectors(draw: st.DrawFn, lengths: st.SearchStrategy[int] = LENGTHS) -> list[Vector]:
    """Draw some vectors less the first of them."""
    base, *others = vectors(draw, draw(st.integers(2, 5)), draw(lengths))
    return [other.less(base) for other in others]


def base_of(some: list[Vector]) -> Vector:
    """Return the base of task vectors."""
    assert some[0].base is not None
    return some[0].base


def vectors(draw: Draw, count: int, length: int) -> list[Vector]:
    """Draw vectors of any element types, with a few repeated numbers or normal ones."""
    found = []
    for _ in range(count):
        some = draw(hnp.arrays(np.float32, st.integers(1, 40), elements=NUMBERS))
        random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        values = random.choice(some, length) if draw(st.booleans()) else _normal(random, length)
        found.append(stored(torch.from_numpy(values), draw(DTYPES)))
    return found


@st.composite
def runs(draw: st.DrawFn, length: int, row: int = 1) -> BlockRun:
    """Draw a run of that many elements, of one block or several, which hold whole rows."""
    rows = length // row
    size = draw(st.integers(max(1, rows // 5), max(1, rows)))
    return BlockRun(draw(st.integers(0, 9)), size * row, length)


@st.composite
def masks(draw: st.DrawFn, length: int) -> np.ndarray | None:
    """Draw a mask, or None."""
    random = np.random.default_rng(draw(st.integers(0, 9)))
    return draw(st.none() | st.just(random.integers(0, 2, length, np.uint8)))


def stored(values: Tensor, dtype: int) -> Vector:
    """Return a float32 tensor as it is stored in an element type."""
    bits = values.to(TORCH[dtype]).contiguous()
    return Vector(bits.view(getattr(torch, KINDS[dtype].__name__)).numpy(), dtype)


def both(compute: Callable[[], Found]) -> tuple[Found, Found]:
    """Return what the kernels compute, and what the oracles compute."""
    found = compute()
    with computed_by_oracles():
        return found, compute()


def agree(compute: Callable[[Vector], None], length: int, dtype: int) -> None:
    """Check that kernels and oracles write the same bytes, those of NaN too."""

    def written() -> np.ndarray:
        out = Vector(np.zeros(length, KINDS[dtype]), dtype)
        compute(out)
        return out.data.view(np.uint8)

    np.testing.assert_array_equal(*both(written))


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether two arrays of floats have the same bits, if every NaN counts as equal."""
    width = np.dtype(f"u{found.dtype.itemsize}")
    nan = np.isnan(found) & np.isnan(expected)
    bits = (np.ascontiguousarray(x).view(width)[~nan] for x in (found, expected))
    return found.shape == expected.shape and bool(np.array_equal(*bits))


def _normal(random: np.random.Generator, length: int) -> np.ndarray:
    return random.standard_normal(length, np.float32)
