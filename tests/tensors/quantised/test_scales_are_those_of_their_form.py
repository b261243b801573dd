"""Promise: a quantised weight has the scales and the factor of its form, also of zeros and of what
is out of range, and is computed in whole blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_kind import NotedFiles, leaf
from reading import evaluation, read

from resumerge.kernels import round_to
from resumerge.kernels.quantised import Code
from resumerge.native import Vector
from resumerge.tensors import Merged, Quantised, Stored
from resumerge.tensors.evaluation import as_vector
from resumerge.tensors.quantised.codes import E2M1, E8M0, INT4, decode_codes
from resumerge.tensors.quantised.form import Form
from resumerge.tensors.target import BLOCK_ELEMENTS

NAN = float("nan")
LARGEST = float(np.finfo(np.float32).max)
BF16_LARGEST = float(np.uint32(0x7F7F0000).view(np.float32))


@pytest.mark.parametrize(
    ("form", "maxima", "expected"),
    [
        (Form("f", Code.E4M3, 448.0, "F32"), [448, 224, 3], [1, 0.5, np.float32(3) / 448]),
        (Form("f", Code.E4M3, 448.0, "F32"), [0, 1e-40, np.inf], [2.0**-126, 2.0**-126, NAN]),
        (Form("f", Code.E4M3, 0.5, "F32"), [3e38, NAN], [LARGEST, NAN]),
        (Form("f", Code.INT4, 8.0, "F16"), [8, 0, 1e9], [1, 2.0**-14, 65504]),
        (Form("f", Code.INT4, 1.0, "F16"), [1 + 2**-11, np.inf], [1, NAN]),
        (Form("f", Code.INT4, 1.0, "BF16"), [1 + 2**-8, 1 + 3 * 2**-8], [1, 1 + 2**-6]),
        (Form("f", Code.INT4, 1.0, "BF16"), [0, LARGEST], [2.0**-126, BF16_LARGEST]),
        (Form("f", Code.E2M1, 6.0, "U8"), [6, 6.99, 7, 4, 3.5], [1, 1, 2, 1, 1]),
        (Form("f", Code.E2M1, 6.0, "U8"), [3.49, 2.0**-126, 0], [0.5, 2.0**-127, 2.0**-127]),
        (Form("f", Code.E2M1, 6.0, "U8"), [LARGEST, np.inf, NAN], [2.0**126, NAN, NAN]),
        (Form("f", Code.E2M1, 1.0, "U8"), [1, 2.0**127], [1, 2.0**127]),
    ],
)
def test_a_scale_is_in_the_range_of_its_type(
    form: Form, maxima: list[float], expected: list[float]
) -> None:
    """The stored scale is the returned one; a number that is not finite makes its scale NaN."""
    given = np.array([maxima], np.float32)
    stored, scales = form.scaled(given.copy())
    np.testing.assert_array_equal(scales, np.array([expected], np.float32))
    kinds: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "U8": np.uint8}
    if form.scales == "BF16":
        found = (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        found = stored.view(kinds[form.scales])
        found = E8M0.table[found, 0] if form.scales == "U8" else found
    np.testing.assert_array_equal(found.astype(np.float32).reshape(-1), scales[0])


NVFP4 = Form("nvfp4", Code.E2M1, 6.0, "F8_E4M3", 448.0 * 6.0)


def test_scales_in_float8_are_multiplied_by_the_factor_of_the_weight() -> None:
    """A scale that would be 0 is 1/8. Numbers are divided by scales without the factor."""
    factor = NVFP4.factor(2688.0)
    assert factor == 1
    stored, scales = NVFP4.scaled(np.array([[2688, 6, 0, 1e-9, np.nan]], np.float32), factor)
    assert stored.tolist() == [0x7E, 0x38, 0x20, 0x20, 0x7F]
    np.testing.assert_array_equal(scales, np.array([[448, 1, 0.125, 0.125, np.nan]], np.float32))
    stored, scales = NVFP4.scaled(np.array([[6.0, 3.0]], np.float32), np.float32(4))
    assert stored.tolist() == [0x48, 0x40] and scales.tolist() == [[1, 0.5]]


def test_a_scale_in_float8_is_rounded_as_torch_multiplies() -> None:
    """The quotient is computed first, and then multiplied by the factor."""
    factor = np.float32(2688) / np.float32(371)
    halfway = np.arange(17, 31, 2, dtype=np.float32) / 16  # between two numbers of float8
    near = [np.float32(6) * halfway / factor]
    for towards in (0, np.inf):
        near += [np.nextafter(near[0], np.float32(towards))]
    maxima = np.concatenate([each * np.float32(2.0**k) for each in near for k in range(7)])[None]
    exact = factor * (maxima / np.float32(6)), factor * maxima / np.float32(6)
    bytes_of_both = []
    for numbers in exact:
        out = np.empty(numbers.size, np.uint8)
        round_to(Vector(numbers.reshape(-1)), as_vector(out, "F8_E4M3"))
        bytes_of_both.append(out)
    stored, _ = NVFP4.scaled(maxima, factor)
    assert stored.tolist() == bytes_of_both[0].tolist()
    assert (bytes_of_both[0] != bytes_of_both[1]).any(), "or the order would not show"


def test_the_factor_is_rounded_as_torch_divides() -> None:
    """The reciprocal comes first. The factor is 1 if a form has none, or where it is infinite."""
    one, whole = np.float32(1), np.float32(2688)
    largest = np.arange(1, 200, dtype=np.float32)
    found = np.array([NVFP4.factor(float(number)) for number in largest])
    np.testing.assert_array_equal(found, one / largest * whole)
    assert (found != whole / largest).any(), "or the order would not show"
    assert NVFP4.factor(0.0) == 1, "infinite otherwise"
    assert Form("f", Code.E2M1, 6.0, "U8").factor(3.0) == 1
    tiny = np.finfo(np.float32).tiny
    small = Form("f", Code.E2M1, 6.0, "F8_E4M3", 1.0)
    assert small.factor(0.0) == one / tiny == small.factor(float(tiny) / 2)


def test_the_factor_is_that_of_the_largest_number_anywhere() -> None:
    """The numbers of the weight are read for the factor once, a few rows at a time."""
    values = np.ones((6, 8), np.float32)
    for row in range(6):
        values[row, 5] = 9.0
        tensor = Quantised(
            name="q",
            dtype="U8",
            shape=Quantised.of("q", leaf("w", values), NVFP4, (1, 4)).shape,
            weight=leaf("w", values),
            form=NVFP4,
            block=(1, 4),
            rows_at_once=2,
        )
        files = NotedFiles({"w": values})
        data = read(evaluation(files, 1 << 20), tensor)
        assert data[-4:] == NVFP4.factor(9.0).tobytes()
        assert {(leaf.name, k) for leaf, a, b in tensor.reads_once() for k in range(a, b)} == (
            files.read
        )
        values[row, 5] = 1.0


def weight(rows: int, columns: int, block: int | None = None) -> Any:
    stored = Stored("w", "BF16", (rows, columns), "f", 0)
    if block is None:
        return stored
    return Merged(
        name="m",
        dtype="BF16",
        shape=(rows, columns),
        method="linear",
        operands=(stored,),
        params={},
        per_operand=({"weight": 1.0},),
        base=None,
        seed=0,
        block_elements=block,
    )


FORM = Form("int4", Code.INT4, 7.5, "BF16")


@pytest.mark.parametrize(
    ("columns", "height", "at_once"),
    [(64, 1, BLOCK_ELEMENTS // 64), (64, 100, 4000), (BLOCK_ELEMENTS, 3, 3), (3000, 2, 86)],
)
def test_as_many_whole_blocks_are_computed_together_as_a_block_of_a_merge_has(
    columns: int, height: int, at_once: int
) -> None:
    plain = Quantised.of("q", weight(9000, columns), FORM, (height, 2))
    assert plain.rows_at_once == at_once and plain.weight.dtype == "BF16"
    merged = Quantised.of("q", weight(9000, columns, BLOCK_ELEMENTS), FORM, (height, 2))
    assert merged.rows_at_once == at_once
    assert isinstance(merged.weight, Merged)
    assert (merged.weight.dtype, merged.weight.block_elements) == ("F32", at_once * columns)


@pytest.mark.parametrize("block", [7 * 8, 100])
def test_what_is_merged_as_a_whole_is_quantised_as_a_whole(block: int) -> None:
    """The block of the merge is extended to whole blocks of the quantised weight."""
    tensor = Quantised.of("q", weight(7, 8, block), FORM, (4, 8))
    assert isinstance(tensor.weight, Merged)
    assert (tensor.rows_at_once, tensor.weight.block_elements) == (8, 64)
    smaller = Quantised.of("q", weight(7, 8, 55), FORM, (4, 8))
    assert smaller.rows_at_once == BLOCK_ELEMENTS // 8


def test_its_bytes_are_those_of_codes_scales_factor_and_description() -> None:
    tensor = Quantised.of("q", weight(5, 8), FORM, (2, 6), b"more")
    assert (tensor.rows, tensor.columns, tensor.grid) == (5, 8, (3, 2))
    assert (tensor.code_bytes, tensor.scale_bytes) == (20, 12)
    assert tensor.shape == (20 + 12 + 4,)
    assert tensor.bytes_at_once == tensor.rows_at_once * 4
    with_factor = Quantised.of("q", weight(5, 8), NVFP4, (1, 4), b"more")
    assert with_factor.shape == (20 + 10 + 4 + 4,)
    assert not [*tensor.reads_once()] and [*with_factor.reads_once()]
    whole = Quantised.of("q", weight(5, 8), Form("fp8", Code.E4M3, 448.0, "F32"), (1, 8))
    assert whole.shape == (40 + 20,)
    stack = Quantised.of("q", Stored("w", "F32", (3, 4, 8), "f", 0), FORM, (2, 8))
    assert (stack.rows, stack.grid) == (12, (6, 1))


def test_codes_are_decoded_as_what_they_are() -> None:
    codes = np.array([0x1F, 0x38], np.uint8)
    out = np.empty(4, np.float32)
    decode_codes(codes, Code.INT4, out)
    assert out.tolist() == [7, -7, 0, -5] == [INT4.numbers[n] for n in (15, 1, 8, 3)]
    decode_codes(codes, Code.E2M1, out)
    assert out.tolist() == [-6, 0.5, -0.0, 1.5] == [E2M1.numbers[n] for n in (15, 1, 8, 3)]
    decode_codes(codes, Code.E4M3, out[:2])
    assert out[:2].tolist() == [15 * 2.0**-7, 1.0]
