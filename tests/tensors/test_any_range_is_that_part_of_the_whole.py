"""Promise: a range of a tensor has the numbers of its definition, wherever it begins and ends."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Mapping
from unittest.mock import patch

import numpy as np
import pytest
from descriptors import is_open_on
from hypothesis import given
from hypothesis import strategies as st
from reading import evaluation, read

from resumerge.tensors import (
    Adapted,
    Dequantised,
    PackedBlocks,
    ScratchFile,
    Stacked,
    Stored,
    Tensor,
)
from resumerge.tensors.adapters import adapted as adapted_module
from resumerge.tensors.quantised import dequantised as dequantised_module
from resumerge.tensors.quantised import packed_blocks as packed_blocks_module

DTYPES = {"float32": "F32", "float64": "F64", "int8": "I8", "uint8": "U8", "int32": "I32"}


class InMemory:
    """Files in memory, each with one tensor that is named like it."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._data = {name: array.tobytes() for name, array in arrays.items()}

    def descriptor(self, tensor: object) -> None:
        return None

    def fill(self, tensor: Tensor, offset: int, buffer: memoryview) -> None:
        buffer[:] = self._data[tensor.name][offset : offset + len(buffer)]


def stored(arrays: Mapping[str, np.ndarray]) -> dict[str, Stored]:
    return {
        name: Stored(name, DTYPES[str(array.dtype)], array.shape, "f", 0)
        for name, array in arrays.items()
    }


def part(data: st.DataObject, tensor: Tensor) -> tuple[int, int]:
    start = data.draw(st.integers(0, tensor.numel))
    return start, data.draw(st.integers(start, tensor.numel))


def assert_part(found: bytes, whole: np.ndarray, start: int, stop: int) -> None:
    np.testing.assert_array_equal(np.frombuffer(found, np.float32), whole.ravel()[start:stop])


@st.composite
def quantised(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], Dequantised, np.ndarray]:
    """Draw codes with scales and zero points, or without, and the numbers that they stand for."""
    matrices, rows, columns = (draw(st.integers(1, most)) for most in (2, 5, 7))
    block = draw(st.integers(1, rows)), draw(st.integers(1, columns))
    grid = -(-rows // block[0]), -(-columns // block[1])
    random = np.random.default_rng(draw(st.integers(0, 99)))
    of_column = np.arange(columns, dtype=np.int32) // block[1]
    if draw(st.booleans()):
        of_column = random.integers(0, grid[1], columns).astype(np.int32)
    shape = (matrices, *grid)
    arrays = {
        "codes": random.integers(-128, 128, (matrices, rows, columns)).astype(np.int8),
        "scales": random.choice([0.5, 1.0, -3.0], shape).astype(np.float32),
        "zeros": random.integers(-9, 9, shape).astype(np.float32),
        "columns": of_column,
    }
    leaves = stored(arrays)
    uses = {name: draw(st.booleans()) for name in ("scales", "zeros")}
    divides, factor, added = draw(st.booleans()), draw(st.sampled_from([1.0, 2.0])), 0.25
    tensor = Dequantised(
        name="w",
        dtype="F32",
        shape=(matrices, rows, columns),
        scheme="made up",
        codes=leaves["codes"],
        codebook=None,
        rows=rows,
        columns=columns,
        block=block,
        scales=leaves["scales"] if uses["scales"] else None,
        divides=divides,
        zeros=leaves["zeros"] if uses["zeros"] else None,
        block_of_column=leaves["columns"],
        factor=factor,
        added=added,
    )
    of_row = np.arange(rows) // block[0]
    zeros, scales = (arrays[name][:, of_row][:, :, of_column] for name in ("zeros", "scales"))
    numbers = arrays["codes"].astype(np.float32)
    numbers -= zeros if uses["zeros"] else 0
    if uses["scales"]:
        numbers = numbers / scales if divides else numbers * scales
    return arrays, tensor, numbers * np.float32(factor) + np.float32(added)


@given(made=quantised(), piece=st.integers(1, 40), data=st.data())
def test_of_codes_with_scales(
    made: tuple[dict[str, np.ndarray], Dequantised, np.ndarray], piece: int, data: st.DataObject
) -> None:
    arrays, tensor, numbers = made
    start, stop = part(data, tensor)
    with patch.object(dequantised_module, "PIECE_ELEMENTS", piece):
        found = read(evaluation(InMemory(arrays)), tensor, start, stop)
    assert_part(found, numbers, start, stop)


@given(count=st.integers(1, 9), piece=st.integers(3, 20), data=st.data())
def test_of_blocks_of_codes(count: int, piece: int, data: st.DataObject) -> None:
    """A block here is a scale and three numbers."""

    def decode(raw: np.ndarray, out: np.ndarray) -> None:
        out[:] = raw[:, :1].astype(np.float32) * raw[:, 1:]

    raw = np.random.default_rng(count).integers(0, 256, (count, 4)).astype(np.uint8)
    arrays = {"coded": raw.ravel()}
    tensor = PackedBlocks(
        name="w",
        dtype="F32",
        shape=(count, 3),
        scheme="made up",
        coded=stored(arrays)["coded"],
        elements=3,
        block_bytes=4,
        decode=decode,
        milliseconds=1.0,
    )
    whole = np.empty((count, 3), np.float32)
    decode(raw, whole)
    start, stop = part(data, tensor)
    with patch.object(packed_blocks_module, "PIECE_ELEMENTS", piece):
        found = read(evaluation(InMemory(arrays)), tensor, start, stop)
    assert_part(found, whole, start, stop)


@given(count=st.integers(1, 4), size=st.integers(1, 5), data=st.data())
def test_of_tensors_one_after_the_other(count: int, size: int, data: st.DataObject) -> None:
    whole = np.arange(count * size, dtype=np.float32).reshape(count, size)
    arrays = {f"part {number}": row for number, row in enumerate(whole)}
    tensor = Stacked.of("w", whole.shape, tuple(stored(arrays).values()))
    start, stop = part(data, tensor)
    found = read(evaluation(InMemory(arrays)), tensor, start, stop)
    assert_part(found, whole, start, stop)


@pytest.mark.needs("torch")
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    transposed=st.booleans(),
    with_magnitude=st.booleans(),
    chunk=st.integers(1, 30),
    data=st.data(),
)
def test_of_weights_that_an_adapter_changes(
    sizes: tuple[int, int, int],
    transposed: bool,
    with_magnitude: bool,
    chunk: int,
    data: st.DataObject,
) -> None:
    """The changes are LoRA (arXiv 2106.09685) and DoRA (arXiv 2402.09353), in both axis orders."""
    outputs, inputs, rank = sizes
    random = np.random.default_rng(outputs)
    weight = random.standard_normal((outputs, inputs))
    a = random.integers(-9, 10, (rank, inputs)).astype(np.float32)  # which is exact in 22 bits
    b = random.integers(-9, 10, (outputs, rank)).astype(np.float32)
    magnitude = random.uniform(0.5, 2.0, outputs)
    arrays = {
        "weight": np.ascontiguousarray(weight.T if transposed else weight),
        **{"a": a, "b": b, "magnitude": magnitude},
    }
    leaves = stored(arrays)
    tensor = Adapted.of(
        "w",
        leaves["weight"],
        leaves["a"],
        leaves["b"],
        1.5,
        transposed,
        leaves["magnitude"] if with_magnitude else None,
    )
    expected = weight + 1.5 * b @ a
    if with_magnitude:
        expected *= (magnitude / np.sqrt((expected**2).sum(1)))[:, None]
    start, stop = part(data, tensor)
    with patch.object(adapted_module, "CHUNK", chunk):
        found = read(evaluation(InMemory(arrays), limit=1 << 20), tensor, start, stop)
    whole = (expected.T if transposed else expected).ravel()
    np.testing.assert_allclose(np.frombuffer(found), whole[start:stop], rtol=1e-12, atol=1e-12)


def test_of_a_file_without_a_name_which_closes_by_itself() -> None:
    with tempfile.TemporaryFile() as made:
        made.write(bytes(range(50)))
        made.flush()
        file = ScratchFile(os.dup(made.fileno()))
        out = np.zeros(20, np.uint8)
        file.read(7, out)
        assert out.tolist() == list(range(7, 27))
        with pytest.raises(OSError, match="ends at 50 bytes"):
            file.read(40, out)
        descriptor, opened = file.fd, os.fstat(file.fd)
        del file
        gc.collect()
        assert not is_open_on(descriptor, opened)
