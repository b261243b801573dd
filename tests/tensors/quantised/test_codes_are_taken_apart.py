"""Promise: codes lie in bytes as their codebook says, and damaged ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_kind import NotedFiles, leaf
from reading import evaluation, read

from resumerge.errors import InputError
from resumerge.tensors import (
    Dequantised,
    Merged,
    Repacked,
    Stored,
    Tensor,
)
from resumerge.tensors.quantised.codes import Codebook, minifloat, whole_numbers


def stored(name: str, dtype: str = "F32", shape: tuple[int, ...] = (4, 3), **more: Any) -> Stored:
    return Stored(name, dtype, shape, "f", 64, **more)


def merged(*operands: Tensor, dtype: str = "F32", **given: Any) -> Merged:
    fixed: dict[str, Any] = {
        "method": "linear",
        "params": {"normalize": True},
        "per_operand": tuple({"weight": 1.0} for _ in operands),
        "base": None,
        "seed": 0,
        "block_elements": 5,
    }
    shape = operands[0].shape
    return Merged(name="m", dtype=dtype, shape=shape, operands=operands, **{**fixed, **given})


def test_codes_of_four_bits_lie_in_pairs_in_either_order() -> None:
    low, high = (Codebook("b", tuple(map(float, range(16))), order) for order in (False, True))
    assert (low.per_byte, low.table[0x2F].tolist()) == (2, [15, 2])
    assert (high.per_byte, high.table[0x2F].tolist()) == (2, [2, 15])
    out = np.empty(4, np.float32)
    high.decode(np.array([0x12, 0xF0], np.uint8), out)
    assert out.tolist() == [1, 2, 15, 0]
    eight = whole_numbers(8, 128)
    assert (eight.per_byte, eight.numbers[0], eight.numbers[255]) == (1, -128, 127)
    assert (eight.name, whole_numbers(4, 0).name) == ("uint8-128", "uint4")
    assert [minifloat(code, 2, 3) for code in (0b0001, 0b0100, 0b1111)] == [0.0625, 0.25, -0.4375]


def test_numbers_that_are_taken_apart_have_the_codebook_of_their_bytes() -> None:
    """Two numbers share a byte if each has four bits and the rows have an even length."""
    packed = stored("q", "I32", (4, 2))
    kinds = [(4, 16, 2), (4, 15, 1), (8, 8, 1)]
    for bits, columns, per_byte in kinds:
        tensor = Repacked.of(packed, 4, columns, bits=bits, along=1)
        assert tensor.codebook(8).per_byte == per_byte
        assert tensor.codebook(8).numbers[0] == -8
        assert tensor.shape == (4, columns // per_byte)
    assert Repacked.of(packed, 4, 16, bits=4, along=1).order == tuple(range(8))
    assert Repacked.of(stored("q", "U8", (4, 2)), 4, 4, bits=4, along=1).order == (0, 1)


def test_groups_of_columns_that_there_are_not_are_refused() -> None:
    for damaged, found in (([0, 2], "0 to 2"), ([-1, 0], "-1 to 0")):
        arrays = {"c": np.zeros((2, 2), np.int8), "s": np.ones((2, 2), np.float32),
                  "g": np.array(damaged, np.int32)}  # fmt: skip
        tensor = Dequantised(
            name="w",
            dtype="F32",
            shape=(2, 2),
            scheme="made up",
            codes=leaf("c", arrays["c"]),
            codebook=None,
            rows=2,
            columns=2,
            block=(1, 1),
            scales=leaf("s", arrays["s"]),
            block_of_column=leaf("g", arrays["g"]),
        )
        with pytest.raises(InputError, match=f"(?s)damaged.*g.*0 to 1.*{found}"):
            read(evaluation(NotedFiles(arrays)), tensor)


@pytest.mark.parametrize("groups", [[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]])
def test_columns_have_the_scales_of_their_groups_however_long_these_are(groups: list[int]) -> None:
    """Groups of different lengths, also if they are in order, have their own scales."""
    arrays = {
        "c": np.ones((2, 4), np.int8),
        "s": np.array([[2, 3], [4, 5]], np.float32),
        "g": np.array(groups, np.int32),
    }
    tensor = Dequantised(
        name="w",
        dtype="F32",
        shape=(2, 4),
        scheme="made up",
        codes=leaf("c", arrays["c"]),
        codebook=None,
        rows=2,
        columns=4,
        block=(1, 2),
        scales=leaf("s", arrays["s"]),
        block_of_column=leaf("g", arrays["g"]),
    )
    found = np.frombuffer(read(evaluation(NotedFiles(arrays)), tensor), np.float32)
    assert found.tolist() == [*arrays["s"][0][groups], *arrays["s"][1][groups]]
