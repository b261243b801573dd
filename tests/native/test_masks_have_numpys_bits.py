"""Random masks and masks by rank, compiled for any processor or drawn with NumPy: the same bits."""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from both_ways import SETS, as_tensor, needs_kernels, vectors
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import resumerge.native
from resumerge.kernels import Block, random_mask, rank_mask
from resumerge.kernels.masks.random import philox_key
from resumerge.native import Vector

pytestmark = needs_kernels
LENGTHS = st.integers(0, 70) | st.sampled_from([1023, 1024, 1025, 5000, 131_073])
DENSITIES = st.floats(0, 1) | st.sampled_from([0.0, 1e-5, 1 / 256, 0.53, 255 / 256, 1 - 1e-9])
varied = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Use = Callable[[str], None]


@varied
@pytest.mark.parametrize("instructions", SETS)
@given(LENGTHS, DENSITIES, st.text(max_size=9), st.integers(0, 2**64 - 1))
@example(1_000_003, 0.3, "key", 2**33)
def test_random_masks(
    use_kernels: Use, instructions: str, count: int, density: float, key: str, number: int
) -> None:
    block = Block(number, 0, count)
    use_kernels("torch")
    expected = random_mask(count, density, key, block)
    use_kernels(instructions)
    assert random_mask(count, density, key, block).tolist() == expected.tolist()


@st.composite
def rows(draw: st.DrawFn) -> tuple[Vector, int, int]:
    """A task vector of whole rows; the elements of a row, and how far apart they are."""
    row = draw(st.integers(1, 40) | st.sampled_from([255, 256, 257, 1024, 3000, 70_000]))
    stride = draw(st.integers(1, 5)) if row < 2000 else draw(st.sampled_from([1, 2]))
    runs = draw(st.integers(0, 4)) if row < 2000 else draw(st.integers(1, 2))
    other, base = vectors(draw, 2, runs * row * stride)
    return Vector(other.data, other.dtype, draw(st.sampled_from([None, base]))), row, stride


@st.composite
def probabilities(draw: st.DrawFn) -> tuple[float, float]:
    """A density and a reach, which may be 0, and all that is possible."""
    density = draw(st.floats(0.001, 0.999))
    most = min(density, 1 - density) * 0.999
    reaches = st.sampled_from([0.0, most, -most, 5e-324]) | st.floats(-most, most)
    return density, draw(reaches)


@varied
@pytest.mark.parametrize("instructions", SETS)
@given(rows(), probabilities(), st.text(max_size=9), st.integers(0, 2**64 - 1))
def test_masks_by_rank(
    use_kernels: Use,
    instructions: str,
    given_rows: tuple[Vector, int, int],
    wanted: tuple[float, float],
    key: str,
    number: int,
) -> None:
    use_kernels(instructions)
    vector, row, stride = given_rows
    block = Block(number, 0, len(vector))
    rest = (row, *wanted, key, block, stride)
    expected = rank_mask(as_tensor(vector), *rest)
    assert rank_mask(vector, *rest).tolist() == expected.tolist()


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("reach", [0.3, -0.3])
def test_masks_by_rank_of_numbers_of_all_sizes(
    use_kernels: Use, instructions: str, reach: float
) -> None:
    """Also such that are too small beside the row's largest to be told apart."""
    use_kernels(instructions)
    bits = np.random.default_rng(1).integers(0, 2**32, 60 * 4000, np.uint32)
    bits[: 30 * 4000] &= 0xBFFFFFFF
    values = Vector(bits.view(np.float32))
    for row in (100, 4000):
        rest = (row, 0.5, reach, "key", Block(0, 0, len(bits)), 1)
        assert (rank_mask(values, *rest) == rank_mask(as_tensor(values), *rest)).all()


def test_products_where_the_compiler_has_no_128_bits(use_kernels: Use, tmp_path: Path) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    source = Path(resumerge.native.__file__).parent / "baseline.c"
    library = tmp_path / "portable.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-U__SIZEOF_INT128__", "-o", library, source, "-lm"],
        check=True,
        timeout=60,
    )
    use_kernels("torch")
    expected = random_mask(5000, 0.3, "key", Block(7, 0, 5000))
    key, mask = philox_key("key"), np.empty(5000, np.uint8)
    seed = (ctypes.c_uint64 * 3)(key & 2**64 - 1, key >> 64, 7)
    whole, fraction = divmod(0.3 * 256, 1.0)
    ctypes.CDLL(str(library)).resumerge_random_mask_baseline(
        seed,
        ctypes.c_uint8(int(whole)),
        ctypes.c_uint64(int(fraction * 2**64)),
        ctypes.c_int64(5000),
        mask.ctypes.data_as(ctypes.c_void_p),
    )
    assert mask.tolist() == expected.tolist()
