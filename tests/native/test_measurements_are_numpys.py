"""The sums that measure the numbers of blocks are NumPy's, bit by bit."""

from __future__ import annotations

import numpy as np
from both_ways import DTYPES, both, runs, same, varied, vectors
from hypothesis import given
from hypothesis import strategies as st

from resumerge import kernels
from resumerge.kernels import BlockRun
from resumerge.kernels.measurements import (
    block_of_results,
    keeping_exact,
    measure,
    measured_bytes,
    measured_elements,
)
from resumerge.native import BF16, CODES, F16, F32, KINDS, Vector

E4M3 = CODES["float8_e4m3fn"]
LENGTHS = st.integers(1, 70) | st.sampled_from([511, 512, 513, 5000, 40_000])


def results(dtype: int, run: BlockRun) -> Vector:
    buffer = np.zeros(measured_bytes(run.length, run.size), np.uint8)
    return keeping_exact(Vector(np.zeros(run.length, KINDS[dtype]), dtype), run.size, buffer)


@varied
@given(st.data())
def test_measurements_of_a_merge(compiled: str, data: st.DataObject) -> None:
    length = data.draw(LENGTHS)
    reference, *others = vectors(data.draw, data.draw(st.integers(1, 4)), length)
    run = data.draw(runs(length))
    out = results(data.draw(DTYPES), run)
    weights = [data.draw(st.floats(-2, 2)) for _ in (reference, *others)]
    kernels.weighted_sum([reference, *others], weights, out)
    assert same(*both(lambda: measure(reference, others, out)))


@varied
@given(st.data())
def test_measurements_of_what_a_method_wrote_itself(compiled: str, data: st.DataObject) -> None:
    length = data.draw(LENGTHS)
    reference, result, *others = vectors(data.draw, data.draw(st.integers(2, 4)), length)
    run = data.draw(runs(length))
    out = results(result.dtype, run)
    out.data[:] = result.data
    assert same(*both(lambda: measure(reference, others, out)))


@varied
@given(st.data())
def test_measurements_of_what_is_quantised(compiled: str, data: st.DataObject) -> None:
    length = data.draw(LENGTHS)
    reference, result, *others = vectors(data.draw, data.draw(st.integers(2, 4)), length)
    run = data.draw(runs(length))
    out = results(result.dtype, run)
    out.data[:] = result.data
    kept = len(out.exact)
    step = data.draw(st.sampled_from([0.0, 1e-3, 1.0, np.nan]))
    drawn = np.random.default_rng(data.draw(st.integers(0, 9)))
    written = (drawn.integers(-3, 4, (2, kept)) * np.float32(step)).astype(np.float32)
    assert same(*both(lambda: measure(reference, others, out, written)))


@varied
@given(st.data())
def test_a_block_has_the_same_measurements_whatever_run_it_is_in(
    compiled: str, data: st.DataObject
) -> None:
    length = data.draw(LENGTHS)
    reference, *others = vectors(data.draw, data.draw(st.integers(2, 4)), length)
    run, dtype = data.draw(runs(length)), data.draw(DTYPES)
    weights = [data.draw(st.floats(-2, 2)) for _ in (reference, *others)]

    def measurements(some: BlockRun, part: slice) -> np.ndarray:
        first, *rest = (Vector(v.data[part], v.dtype) for v in (reference, *others))
        out = results(dtype, some)
        kernels.weighted_sum([first, *rest], weights, out)
        return measure(first, rest, out)

    whole = measurements(run, slice(0, length))
    for number, part in enumerate(run.blocks()):
        size = part.stop - part.start
        assert same(whole[number : number + 1], measurements(BlockRun(0, run.size, size), part))


def test_results_are_kept_before_they_are_rounded_a_block_after_the_other() -> None:
    run = BlockRun(0, 20_000, 50_000)
    x = Vector(np.random.default_rng(0).standard_normal(run.length, np.float32))
    out = results(BF16, run)
    kernels.round_to(x, out)
    measured = measured_elements(run.size)
    assert measured == 4096
    expected = np.concatenate([x.data[part][:measured] for part in run.blocks()])
    assert np.array_equal(out.exact, expected)
    again = results(BF16, run)
    for part in run.blocks():
        kernels.round_to(Vector(x.data[part]), block_of_results(again, part))
    assert np.array_equal(again.exact, expected)
    assert np.array_equal(again.data, out.data)


def test_a_change_that_rounds_away_is_lost() -> None:
    base = Vector(np.full(1000, 0x3F80, np.uint16), BF16)  # 1.0
    tuned = Vector(np.full(1000, 1.0 + 1e-4, np.float32))
    run = BlockRun(0, 1000, 1000)
    lost, kept = results(BF16, run), results(F32, run)
    kernels.round_to(tuned, lost)
    kernels.round_to(tuned, kept)
    [of_lost], [of_kept] = measure(base, [tuned], lost), measure(base, [tuned], kept)
    assert (of_lost[3], of_lost[4], of_lost[2], of_lost[6]) == (1000, 1000, 0.0, 1)
    assert np.isclose(of_lost[1], 1000 * 1e-8, rtol=1e-2)
    assert (of_kept[3], of_kept[4], of_kept[6]) == (1000, 0, 0)
    assert of_kept[2] == of_kept[1] == of_lost[1]


def test_what_is_not_finite_is_counted_with_what_it_comes_from() -> None:
    values = np.array([1.0, np.nan, np.inf, 60000.0, 60000.0, -60000.0], np.float32)
    model = Vector(values)
    base = Vector(np.ones(6, np.float32))
    run = BlockRun(0, 6, 6)
    out = results(F16, run)
    kernels.weighted_sum([base, model], [0.0, 2.0], out)
    [found] = measure(base, [model], out)
    nans, infinities, overflows, of_base = found[7:11]
    assert (nans, infinities, overflows, of_base, found[15]) == (1, 4, 3, 0, 2)
    eighth = results(E4M3, run)
    kernels.weighted_sum([base, Vector(np.full(6, 300.0, np.float32))], [0.0, 2.0], eighth)
    [found] = measure(base, [Vector(np.full(6, 300.0, np.float32))], eighth)
    assert (*found[7:10],) == (0, 0, 6)
