"""Promise: of whatever kind an output tensor is, its blocks are measured: what was changed, and how
much of that is left in what is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from every_kind import FORM, NotedFiles, bfloat16, leaf

from resumerge.engine.evaluation.kernel_backend import KernelBackend
from resumerge.kernels import measurements
from resumerge.kernels.measurements import without_elements
from resumerge.tensors import (
    Adapted,
    Dequantised,
    Encoded,
    Gathered,
    Halved,
    Interleaved,
    Merged,
    Quantised,
    Rounded,
    Sliced,
    Stacked,
    Tensor,
    Tiled,
    Transposed,
)
from resumerge.tensors.adapters.factors import Factors
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.evaluation import Evaluation, HeldValues
from resumerge.tensors.rows import Rows

ROWS, COLUMNS = 7, 8
NUMEL = ROWS * COLUMNS

Round = Callable[[np.ndarray], np.ndarray]


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def numbers(seed: int) -> np.ndarray:
    """Return numbers of bfloat16 between 1 and 16."""
    random = np.random.default_rng(seed)
    return to_bfloat16(random.uniform(1, 16, (ROWS, COLUMNS)).astype(np.float32))


X0, X1, X2 = (numbers(seed) for seed in range(3))
EXACT = X0 + 0.5 * (X1 - X0) + 0.25 * (X2 - X0)
ARRAYS = {"x1": bfloat16(X1), "x0": bfloat16(X0), "x2": bfloat16(X2)}


def sums(
    x0: np.ndarray,
    others: Sequence[np.ndarray],
    x: np.ndarray,
    out: np.ndarray,
    y: np.ndarray,
    c: np.ndarray,
    block: int,
) -> np.ndarray:
    """Return the measurements by their definitions, in float64.

    `out` is rounded to its dtype; y and c are what is written of it, and of x0.
    """
    found = []
    flat = [np.ravel(each).astype(np.float64) for each in (x0, x, y, c)]
    for start in range(0, len(flat[0]), block):
        whole = slice(start, start + block)
        count = measurements.measured_elements(block)
        b, e, w, r = (each[start : start + min(count, block)] for each in flat)
        moved = e != b
        deltas = [np.ravel(o)[start : start + len(b)].astype(np.float64) - b for o in others]
        conflicts = np.any([d > 0 for d in deltas], 0) & np.any([d < 0 for d in deltas], 0)
        equal = [np.array_equal(np.ravel(o)[whole], np.ravel(x0)[whole]) for o in (out, *others)]
        found.append(
            [
                *(len(b), np.square(e - b).sum(), np.square(w - r).sum(), moved.sum()),
                *((moved & (w == r)).sum(), conflicts.sum(), equal[0], 0, 0, 0, 0),
                *(
                    number
                    for d, same in zip(deltas, equal[1:])
                    for number in ((d * d).sum(), (d * (w - r)).sum(), (d != 0).sum(), same, 0)
                ),
            ]
        )
    return np.array(found, np.float64)


def measured(
    tensor: Tensor, arrays: dict[str, np.ndarray], block: int, ends: Sequence[int] = ()
) -> np.ndarray:
    """Return the measurements of a tensor that is read in ranges with these ends."""
    found: list[np.ndarray] = []
    call: Any = KernelBackend
    with_ = Evaluation(
        NotedFiles(arrays), Buffers(), HeldValues(1 << 20), call, {}, {}, found, block
    )
    start = 0
    for stop in (*ends, tensor.numel):
        tensor.read(with_, start, stop, np.empty(stop - start, np.uint8).repeat(_width(tensor)))
        start = stop
    return np.concatenate(found)


def _width(tensor: Tensor) -> int:
    return tensor.nbytes // tensor.numel


def assert_measured(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=[3, 5, 8, 11, 1 << 12])
def sample(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set and return how many elements of a block are measured: less than a row, or more."""
    monkeypatch.setattr(measurements, "LEAST_MEASURED", request.param)
    return int(request.param)


def merged(dtype: str, block: int, base: int | None = 1) -> Merged:
    """Return a merge of task vectors of two models, with the base between them."""
    return Merged(
        name="m",
        dtype=dtype,
        shape=(ROWS, COLUMNS),
        method="task_arithmetic",
        operands=tuple(leaf(name, array) for name, array in ARRAYS.items()),
        params={"normalize": False, "lambda": 1.0},
        per_operand=({"weight": 0.5}, {}, {"weight": 0.25}),
        base=base,
        seed=0,
        block_elements=block,
        models=("one", "base", "two"),
    )


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.usefixtures("sample")
def test_of_a_merge_changes_are_counted_from_the_base(dtype: str) -> None:
    tensor = merged(dtype, 12)
    out = EXACT if dtype == "F32" else to_bfloat16(EXACT)
    expected = sums(X0, (X1, X2), EXACT, out, out, X0, 12)
    assert_measured(measured(tensor, ARRAYS, 0, (24, 36)), expected)
    assert tensor.compared_models == ("base", "one", "two")
    without_names = Merged(**{**vars_of(tensor), "models": ()})
    assert without_names.compared_models == ("operand 2", "operand 1", "operand 3")


def vars_of(tensor: Merged) -> dict[str, Any]:
    names = ("name", "dtype", "shape", "method", "operands", "params", "per_operand")
    more = ("base", "seed", "block_elements", "models")
    return {name: getattr(tensor, name) for name in (*names, *more)}


def first_rows(table: Tensor) -> Tensor:
    none = np.array([], np.int64)
    rows = Rows.of(np.zeros(2, int), np.arange(2), 2, (np.array([0]), none, none))
    return Gathered.of("g", (2, COLUMNS), (table,), rows)


@pytest.mark.parametrize(
    "make",
    [
        lambda whole: Rounded.of(whole, "F16"),
        lambda whole: Stacked.of("s", (2 * ROWS, COLUMNS), (whole, whole)),
        lambda whole: Tiled.of("t", (ROWS, COLUMNS), (whole,), ((0, 0),)),
        lambda whole: Halved.of(Sliced.of("p", (6, COLUMNS), whole), 2),
        lambda whole: Interleaved.of(Sliced.of("p", (6, COLUMNS), whole), 2),
        lambda whole: Dequantised.shifted(whole, 1.0),
        Transposed.of,
        first_rows,
    ],
)
def test_of_what_is_computed_on_the_way_nothing_is_measured(
    make: Callable[[Tensor], Tensor],
) -> None:
    """A merge within another tensor is not measured or hashed: the output has its own blocks."""
    tensor, found = make(merged("F32", 12)), list[np.ndarray]()
    call: Any = KernelBackend
    hashes = {0: bytearray(), 1: bytearray()}
    files, held = NotedFiles(ARRAYS), HeldValues(1 << 20)
    with_ = Evaluation(files, Buffers(), held, call, {}, hashes, found, 12)
    tensor.read(with_, 0, tensor.numel, np.empty(tensor.nbytes, np.uint8))
    assert not found and not any(hashes.values())


def _encode(values: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:, 0] = 2
    blocks[:, 1:] = np.floor(values / 2)


def _decode(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks[:, :1].astype(np.float32) * blocks[:, 1:]


def encoded(operand: Tensor) -> Encoded:
    return Encoded(
        name="m",
        dtype="U8",
        shape=(ROWS, COLUMNS // 4 * 5),
        scheme="even",
        operand=operand,
        elements=4,
        block_bytes=5,
        encode=_encode,
        decode=_decode,
        milliseconds=1.0,
    )


def even(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.floor(values.astype(np.float32) / 2) * 2
    return found


@pytest.mark.usefixtures("sample")
def test_of_blocks_of_codes_it_is_what_they_stand_for() -> None:
    tensor = encoded(merged("F32", 12))
    expected = sums(X0, (X1, X2), EXACT, EXACT, even(EXACT), even(X0), 12)
    assert_measured(measured(tensor, ARRAYS, 15, (30, 45)), expected)
    assert tensor.compared_models == ("base", "one", "two")
    assert tensor.scheme_measured == ("even", NUMEL)


def quantised(weight: Tensor, rows_at_once: int, block: tuple[int, int]) -> Quantised:
    whole = Quantised.of("m", weight, FORM, block, b"more")
    return Quantised(
        name="m",
        dtype="U8",
        shape=whole.shape,
        weight=weight,
        form=FORM,
        block=block,
        rows_at_once=rows_at_once,
        described=b"more",
    )


def on_grid(values: np.ndarray, block: tuple[int, int], of: np.ndarray) -> np.ndarray:
    """Return numbers as a weight's codes stand for them, with the scales of another one."""
    height, width = block
    found = np.empty_like(values)
    for top in range(0, ROWS, height):
        for left in range(0, COLUMNS, width):
            part = np.s_[top : top + height, left : left + width]
            scale = to_bfloat16(np.abs(of[part]).max() / np.float32(7.5))
            found[part] = np.rint(values[part] / scale).clip(-8, 7) * scale
    return found


@pytest.mark.parametrize("block", [(1, 4), (2, 6), (1, COLUMNS), (2, COLUMNS)])
@pytest.mark.usefixtures("sample")
def test_of_quantised_weights_both_have_the_scales_of_the_result(block: tuple[int, int]) -> None:
    """Blocks of bytes that hold no number have no change."""
    at_once = 2 * COLUMNS
    tensor = quantised(merged("F32", at_once), 2, block)
    y, c = on_grid(EXACT, block, EXACT), on_grid(X0, block, EXACT)
    size = tensor.bytes_at_once
    rest = -(-tensor.numel // size) - -(-tensor.code_bytes // size)
    expected = np.concatenate(
        [sums(X0, (X1, X2), EXACT, EXACT, y, c, at_once), without_elements(rest, 2)]
    )
    found = measured(tensor, ARRAYS, size, range(size, tensor.numel, size))
    assert_measured(found, expected)
    assert_measured(measured(tensor, ARRAYS, size, (2 * size,)), expected)
    assert tensor.compared_models == ("base", "one", "two")
    assert tensor.scheme_measured == ("int4", NUMEL)
    in_parts = measured(tensor, ARRAYS, size, range(1, tensor.numel, 3))
    assert not in_parts[:, 0].any(), "of parts of blocks"


A, B = numbers(5)[:2] / 8, numbers(6)[:, :2] / 32
OF_ADAPTER = {"w": bfloat16(X0), "a": bfloat16(A), "b": bfloat16(B)}
ADAPTED = (X0.astype(np.float64) + 0.5 * B.astype(np.float64) @ A).astype(np.float32)


def adapted() -> Adapted:
    w, a, b = (leaf(name, array) for name, array in OF_ADAPTER.items())
    return Adapted.of("w", w, a, b, 0.5, False, models=("model", "tuned"))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.usefixtures("sample")
def test_of_an_adapter_changes_are_counted_from_its_model(exact: bool) -> None:
    tensor = adapted().exact if exact else adapted()
    out = ADAPTED if exact else to_bfloat16(ADAPTED)
    expected = sums(X0, (out,), ADAPTED, out, out, X0, 12)
    assert_measured(measured(tensor, OF_ADAPTER, 12, (24, 36)), expected)
    assert tensor.compared_models == ("model", "tuned")


@pytest.mark.needs("torch")
@pytest.mark.usefixtures("sample")
def test_of_an_adapter_on_an_adapter_the_last_change_is_measured() -> None:
    """The change is measured once, against the weight as it was read, also one in float64."""
    inner = adapted()
    _, a, b, *_ = inner.children()
    twice = Adapted.of("w", inner, a, b, 0.5, False).exact
    again = (ADAPTED.astype(np.float64) + 0.5 * B.astype(np.float64) @ A).astype(np.float32)
    expected = sums(ADAPTED, (again,), again, again, again, ADAPTED, 12)
    assert_measured(measured(twice, OF_ADAPTER, 12, (24, 36)), expected)
    arrays = OF_ADAPTER | {"w": X0.astype(np.float64)}
    wide = Adapted.of("w", leaf("w", arrays["w"]), a, b, 0.5, False)
    exact = X0.astype(np.float64) + 0.5 * B.astype(np.float64) @ A
    expected = sums(X0, (exact,), exact, exact, exact, X0, 12)
    assert_measured(measured(wide, arrays, 12, (24, 36)), expected)


@pytest.mark.needs("torch")
@pytest.mark.usefixtures("sample")
def test_of_what_an_adapter_makes_that_is_written_as_codes() -> None:
    weight = adapted().exact
    of_blocks = measured(encoded(weight), OF_ADAPTER, 15, (30, 45))
    expected = sums(X0, (ADAPTED,), ADAPTED, ADAPTED, even(ADAPTED), even(X0), 12)
    assert_measured(of_blocks, expected)
    tensor, block = quantised(weight, 2, (1, 4)), (1, 4)
    y, c = on_grid(ADAPTED, block, ADAPTED), on_grid(X0, block, ADAPTED)
    size = tensor.bytes_at_once
    rest = -(-tensor.numel // size) - -(-tensor.code_bytes // size)
    expected = sums(X0, (ADAPTED,), ADAPTED, ADAPTED, y, c, 2 * COLUMNS)
    found = measured(tensor, OF_ADAPTER, size, range(size, tensor.numel, size))
    assert_measured(found, np.concatenate([expected, without_elements(rest, 1)]))


@pytest.mark.parametrize(("total", "kept"), [(8.0, 6.0), (8.0, 9.0), (0.0, 0.0)])
def test_of_both_matrices_it_is_the_energy_of_their_product(total: float, kept: float) -> None:
    """The kept energy is no more than the change's, although both sums are rounded apart."""
    pair = (leaf("w", X1), leaf("v", X0))
    matrices = Factors(
        name="f",
        dtype="F32",
        shape=(ROWS + COLUMNS,),
        pairs=(pair,),
        matrix=(ROWS, COLUMNS),
        transposed=False,
        rank=1,
        searched=1,
        distributed=False,
        epsilon=0.0,
        energy=None,
        key="k",
        models=("base", "tuned"),
    )
    found, kept = matrices.measured(total, kept).tolist(), min(kept, total)
    moved, unchanged = (15.0, 0.0) if total else (0.0, 1.0)
    of_all = [15.0, total, kept, 0, 0, 0, unchanged, 0, 0, 0, 0]
    assert found == [[*of_all, total, kept, moved, unchanged, 0]]
