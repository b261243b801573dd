"""The same vectors for torch and for the compiled kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from resumerge.native.library import instruction_sets
from torch import Tensor

from resumerge.native import CODES, Vector

SETS = instruction_sets()
needs_kernels = pytest.mark.skipif(not SETS, reason="the kernels were not compiled: no C compiler")

TORCH = {code: getattr(torch, name) for name, code in CODES.items()}

DTYPES = st.sampled_from(sorted(TORCH))
NUMBERS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-8, 65504.0, 2.0**-24])

LENGTHS = st.integers(0, 70) | st.sampled_from([1023, 1024, 1025, 5000, 131_073])
varied = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Use = Callable[[str], None]


@st.composite
def task_vectors(draw: st.DrawFn, lengths: st.SearchStrategy[int] = LENGTHS) -> list[Vector]:
    """Some vectors less the first of them."""
    base, *others = vectors(draw, draw(st.integers(2, 5)), draw(lengths))
    return [Vector(other.data, other.dtype, base) for other in others]


def vectors(draw: st.DrawFn, count: int, length: int) -> list[Vector]:
    """Vectors of any element types, long ones repeating a few numbers in a shuffled order."""
    found = []
    for _ in range(count):
        some = draw(hnp.arrays(np.float32, st.integers(1, 40), elements=NUMBERS))
        random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        values = random.choice(some, length) if draw(st.booleans()) else _normal(random, length)
        found.append(stored(torch.from_numpy(values), draw(DTYPES)))
    return found


def stored(values: Tensor, dtype: int) -> Vector:
    """A float32 tensor as it is stored in an element type."""
    raw = values.to(TORCH[dtype])
    bits = raw if raw.dtype == torch.float32 else raw.view(torch.uint16)
    return Vector(bits.contiguous().numpy(), dtype)


def as_tensor(vector: Vector) -> Tensor:
    """The same numbers as torch has them: float32, a copy."""
    raw = torch.from_numpy(vector.data.copy())
    wide = raw.view(TORCH[vector.dtype]).float()
    return wide if vector.base is None else wide - as_tensor(vector.base)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two arrays of floats have the same bits, every NaN being one."""
    width = np.dtype(f"u{found.dtype.itemsize}")
    nan = np.isnan(found) & np.isnan(expected)
    return bool(np.array_equal(found.view(width)[~nan], expected.view(width)[~nan]))


def _normal(random: np.random.Generator, length: int) -> np.ndarray:
    return random.standard_normal(length, np.float32)
