"""Promise: a merge takes what an adapter makes before the model rounds it to its files' type."""

from __future__ import annotations

import numpy as np
import pytest
from reading import evaluation, read

from resumerge.tensors import Adapted, Rounded, Sliced, Stacked, Stored, Tensor
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import InFile

SHAPE, RANK = (4, 3), 2


class Numbers:
    """Files in which each element is its place, divided by 77, so that few bits cannot hold it."""

    def descriptor(self, tensor: InFile) -> None:
        return None

    def fill(self, tensor: InFile, offset: int, buffer: memoryview) -> None:
        assert isinstance(tensor, Stored)
        width = BITS[tensor.dtype] // 8
        values = ((1 + np.arange(offset, offset + len(buffer), width)) / 77).astype(np.float32)
        if width == 4:
            np.frombuffer(buffer, np.float32)[:] = values
        else:
            np.frombuffer(buffer, np.uint16)[:] = values.view(np.uint32) >> 16


def stored(name: str, dtype: str, shape: tuple[int, ...] = SHAPE) -> Stored:
    return Stored(name, dtype, shape, "f", 0)


def adapted(name: str, dtype: str = "BF16") -> Adapted:
    a, b = stored("a", "F32", (RANK, SHAPE[1])), stored("b", "F32", (SHAPE[0], RANK))
    return Adapted.of(name, stored(name, dtype), a, b, 1.0, False)


def floats(tensor: Tensor) -> np.ndarray:
    data = read(evaluation(Numbers()), tensor)
    if tensor.dtype == "F32":
        return np.frombuffer(data, np.float32)
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


@pytest.mark.needs("torch")
def test_of_experts_of_which_an_adapter_changes_some() -> None:
    """Packed experts of which some are adapted have the widest type of all before rounding."""
    parts = (stored("first", "BF16"), adapted("second"), stored("third", "BF16"))
    packed = Stacked.of("packed", (len(parts), *SHAPE), parts)
    exact = packed.exact
    assert (packed.dtype, exact.dtype) == ("BF16", "F32")
    expected = np.concatenate([floats(part.exact) for part in parts])
    assert floats(exact).tolist() == expected.tolist() != floats(packed).tolist()


@pytest.mark.needs("torch")
def test_of_a_part_of_what_an_adapter_changes() -> None:
    whole = adapted("w")
    row = Sliced.of("row", SHAPE[1:], whole, SHAPE[1])
    assert floats(row.exact).tolist() == floats(whole.exact)[SHAPE[1] : 2 * SHAPE[1]].tolist()
    assert Sliced.of("row", SHAPE[1:], stored("w", "BF16"), 0).exact.dtype == "BF16"


@pytest.mark.parametrize(
    ("own", "of_model", "taken"),
    [
        ("F32", "BF16", "F32"),
        ("F64", "F32", "F64"),
        ("F16", "BF16", "BF16"),
        ("BF16", "F32", "F32"),
    ],
)
def test_of_a_tensor_that_an_adapter_replaces(own: str, of_model: str, taken: str) -> None:
    """The wider of both types is taken; of two that are equally wide, the model's."""
    tensor = Rounded.of(stored("w", own), of_model, takes_operand=True)
    assert tensor.exact.dtype == taken
    assert Rounded.of(stored("w", own), of_model).exact.dtype == of_model, "of a model itself"
