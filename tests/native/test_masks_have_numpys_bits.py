"""Random masks and masks by rank have the same bits from any processor's kernels and from NumPy."""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from both_ways import LENGTHS, both, runs, varied, vectors
from hypothesis import example, given
from hypothesis import strategies as st

from resumerge.kernels import BlockRun, random_mask, rank_mask
from resumerge.kernels.masks.random import philox_key
from resumerge.native import Vector

DENSITIES = st.floats(0, 1) | st.sampled_from([0.0, 1e-5, 1 / 256, 0.53, 255 / 256, 1 - 1e-9])
LAST = 2**63 - 10
"""The number of a block, almost the highest."""


@varied
@given(LENGTHS.flatmap(runs), DENSITIES, st.text(max_size=9))
@example(BlockRun(2**33, 300_000, 1_000_003), 0.3, "key")
@example(BlockRun(LAST, 2_000, 5_000), 0.3, "key")
def test_random_masks(compiled: str, run: BlockRun, density: float, key: str) -> None:
    found, expected = both(lambda: random_mask(density, key, run).tolist())
    assert found == expected


@st.composite
def rows(draw: st.DrawFn) -> tuple[Vector, int, int, BlockRun]:
    """Draw a task vector of whole rows, the length and the stride of a row, and a run."""
    row = draw(st.integers(1, 40) | st.sampled_from([255, 256, 257, 1024, 3000, 70_000]))
    stride = draw(st.integers(1, 5)) if row < 2000 else draw(st.sampled_from([1, 2]))
    number = draw(st.integers(0, 4)) if row < 2000 else draw(st.integers(1, 2))
    other, base = vectors(draw, 2, number * row * stride)
    run = draw(runs(len(other), row * stride))
    return Vector(other.data, other.dtype, draw(st.sampled_from([None, base]))), row, stride, run


@st.composite
def probabilities(draw: st.DrawFn) -> tuple[float, float]:
    """Draw a density and a reach, which may be 0, or as large as possible."""
    density = draw(st.floats(0.001, 0.999))
    most = min(density, 1 - density) * 0.999
    reaches = st.sampled_from([0.0, most, -most, 5e-324]) | st.floats(-most, most)
    return density, draw(reaches)


@varied
@given(rows(), probabilities(), st.text(max_size=9))
def test_masks_by_rank(
    compiled: str,
    drawn: tuple[Vector, int, int, BlockRun],
    wanted: tuple[float, float],
    key: str,
) -> None:
    vector, row, stride, run = drawn
    found, expected = both(lambda: rank_mask(vector, row, *wanted, key, run, stride).tolist())
    assert found == expected


@pytest.mark.parametrize("reach", [0.3, -0.3])
def test_masks_by_rank_of_numbers_of_all_sizes(compiled: str, reach: float) -> None:
    """Some numbers are too small to be distinguished beside the largest of the row."""
    bits = np.random.default_rng(1).integers(0, 2**32, 60 * 4000, np.uint32)
    bits[: 30 * 4000] &= 0xBFFFFFFF
    values, run = Vector(bits.view(np.float32)), BlockRun(0, len(bits), len(bits))
    for row in (100, 4000):
        found, expected = both(lambda: rank_mask(values, row, 0.5, reach, "key", run))  # noqa: B023
        assert (found == expected).all()


def test_products_where_the_compiler_has_no_128_bits(tmp_path: Path) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    library, program = tmp_path / "portable.so", tmp_path / "portable.c"
    program.write_text(
        '#include "random.h"\n'
        "void draws(const Seed *seed, uint8_t whole, uint64_t rest, int64_t n, uint8_t *mask) {\n"
        "    random_mask_unchecked(seed, whole, rest, n, mask);\n"
        "}\n"
    )
    headers = Path(__file__).parents[2] / "resumerge" / "native"
    options = ["-shared", "-fPIC", "-U__SIZEOF_INT128__", f"-I{headers}", "-o", f"{library}"]
    subprocess.run([compiler, *options, program, "-lm"], check=True)
    expected = random_mask(0.3, "key", BlockRun(7, 5000, 5000))
    mask = np.empty(5000, np.uint8)
    words = np.array([*np.frombuffer(philox_key("key"), np.uint64), 7], np.uint64)
    whole, fraction = divmod(0.3 * 256, 1.0)
    ctypes.CDLL(str(library)).draws(
        words.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint8(int(whole)),
        ctypes.c_uint64(int(fraction * 2**64)),
        ctypes.c_int64(5000),
        mask.ctypes.data_as(ctypes.c_void_p),
    )
    assert mask.tolist() == expected.tolist()
