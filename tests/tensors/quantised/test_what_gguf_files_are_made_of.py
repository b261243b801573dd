"""Promise: rows in pairs, and blocks of codes, are the same whatever range of them is read."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from reading import evaluation, read

from resumerge.quantisation.gguf_blocks import ENCODED, encoded
from resumerge.tensors import Halved, Interleaved, Stored, Tensor


class InMemory:
    """One file, in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def descriptor(self, tensor: object) -> None:
        return None

    def fill(self, tensor: object, offset: int, buffer: memoryview) -> None:
        buffer[:] = self._data[offset : offset + len(buffer)]


def ranges(tensor: Tensor, width: int, means: object, data: st.DataObject) -> None:
    whole = read(means, tensor)  # type: ignore[arg-type]
    for _ in range(5):
        start = data.draw(st.integers(0, tensor.numel))
        stop = data.draw(st.integers(start, tensor.numel))
        part = read(means, tensor, start, stop)  # type: ignore[arg-type]
        assert part == whole[start * width : stop * width], (start, stop)


@given(
    groups=st.integers(1, 3),
    pairs=st.integers(1, 4),
    columns=st.integers(1, 5),
    data=st.data(),
)
def test_rows_in_pairs_undo_rows_in_halves(
    groups: int, pairs: int, columns: int, data: st.DataObject
) -> None:
    rows = 2 * pairs * groups
    values = np.arange(rows * columns, dtype=np.uint16)
    stored = Stored("a", "BF16", (rows, columns), "f", 0)
    means = evaluation(InMemory(values.tobytes()))
    mixed = Interleaved.of(stored, 2 * pairs)
    expected = values.reshape(groups, 2, pairs, columns).swapaxes(1, 2)
    assert read(means, mixed) == expected.tobytes()
    assert read(means, Halved.of(mixed, 2 * pairs)) == values.tobytes()
    ranges(mixed, 2, means, data)


@pytest.mark.parametrize("scheme", ENCODED)
@given(
    bits=arrays.arrays(np.uint32, (6, 64)),
    scale=st.sampled_from([0, 1, 2]),
    data=st.data(),
)
def test_blocks_are_gguf_pys(
    scheme: str, bits: np.ndarray, scale: int, data: st.DataObject
) -> None:
    """Numbers are any float32, or multiples of a half, with halves rounded away from zero."""
    values = bits.view(np.float32)
    if scale:
        values = (bits % 255).astype(np.float32) - 127
        values[:, ::32] = 127 if scale == 1 else 63.5
        values *= 0.5 if scale == 1 else 1.0
    tensor = encoded(Stored("a", "F32", values.shape, "f", 0), scheme)
    means = evaluation(InMemory(values.tobytes()))
    with np.errstate(all="ignore"):
        expected = quantize(values, GGMLQuantizationType[scheme])
    assert tensor.shape == expected.shape
    assert read(means, tensor) == expected.tobytes()
    ranges(tensor, 1, means, data)


@pytest.mark.parametrize("scheme", ENCODED)
def test_numbers_that_are_none_have_one_code_on_every_processor(scheme: str) -> None:
    values = np.ones((3, 32), np.float32)
    values[0, 3], values[1, 4], values[2, 5] = np.nan, np.inf, -np.inf
    means = evaluation(InMemory(values.tobytes()))
    blocks = np.frombuffer(
        read(means, encoded(Stored("a", "F32", (3, 32), "f", 0), scheme)), np.uint8
    ).reshape(3, -1)
    assert not np.isfinite(blocks[:, :2].copy().view(np.float16)).any()
