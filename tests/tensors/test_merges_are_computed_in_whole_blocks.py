"""Promise: a merge is computed in runs of whole blocks, of inputs that are hashed as their model
has them and rounded after, and its method is told about the tensor."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_kind import NotedFiles, bfloat16
from reading import read

from resumerge.kernels import BlockRun
from resumerge.kernels.hashes import hash_block
from resumerge.methods import METHODS, Method
from resumerge.native import CODES, Vector
from resumerge.tensors import (
    Merged,
    Rounded,
    Stored,
    Tensor,
)
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.evaluation import Evaluation, HeldValues


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


A, B, C = (stored(name) for name in "abc")


def test_a_merge_tells_its_method_about_the_tensor() -> None:
    """The numbers of a merge are as wide as the widest operand is before it is rounded."""
    wide = Rounded.of(stored("w", "F64"), "BF16", as_input=True)
    tensor = merged(A, wide, method="ties", base=1, seed=7, params={"lambda": 2.0})
    context = tensor.context
    assert (context.shape, context.base, context.seed, context.name) == ((4, 3), 1, 7, "m")
    assert (context.params, context.per_model) == ({"lambda": 2.0}, tensor.per_operand)
    assert context.bits == 64 and merged(A, B).context.bits == 32
    assert (tensor.reference, merged(A, B).reference) == (1, 0)


def test_only_some_methods_need_reductions_and_none_of_nothing() -> None:
    given: dict[str, Any] = {
        "method": "ties",
        "base": 0,
        "params": {"normalize": True, "lambda": 1.0, "rescale": False},
        "per_operand": ({}, {"weight": 1.0, "density": 0.5}),
    }
    empty = stored("e", shape=(0, 3))
    assert merged(A, B, **given).needs_statistics
    assert not merged(empty, empty, **given).needs_statistics
    assert not merged(A, B).needs_statistics
    one_reduction: dict[str, Any] = {
        "method": "ramplus_tl",
        "base": 0,
        "params": {},
        "per_operand": ({}, {}),
    }
    assert merged(A, B, **one_reduction).needs_statistics
    assert [merged(x, x).blocks for x in (A, empty)] == [3, 1]
    assert merged(A, B).block_run(range(1, 3)) == BlockRun(1, 5, 7)
    assert merged(A, B).block_run(range(3), sample=True).length == 3


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (merged(A, B, dtype="BF16", method="slerp"), True),
        (merged(B, A), False),
        (merged(A, C), False),
        (merged(A, B, block_elements=6), False),
        (merged(A, B, C), False),
        (merged(A, Rounded.of(B, "BF16", as_input=True)), False),
    ],
)
def test_inputs_are_read_for_two_merges_at_once_if_they_are_the_same(
    other: Merged, alike: bool
) -> None:
    assert merged(A, B).reads_as(other) is alike
    assert other.reads_as(merged(A, B)) is alike
    narrow = [merged(A, Rounded.of(B, dtype, as_input=True)) for dtype in ("BF16", "F16")]
    assert not narrow[0].reads_as(narrow[1])
    longer = (stored("a", shape=(5, 3)), B)
    assert not merged(A, B).reads_as(merged(*longer))


def test_inputs_are_those_of_the_model_when_they_are_hashed_and_rounded_after() -> None:
    """Only the requested operands are hashed, whatever their numbers are."""
    values = {name: np.arange(12, dtype=np.float32) + 2.0**-12 for name in "ab"}
    tensor = merged(Rounded.of(A, "BF16", as_input=True), Rounded.of(B, "BF16", as_input=True), A)
    hashes = {1: bytearray(), 2: bytearray()}
    call: Any = None
    with_ = Evaluation(NotedFiles(values), Buffers(), HeldValues(0), call, {}, hashes)
    run = tensor.block_run(range(1, 3))
    inputs = tensor.inputs(with_, run)
    assert [vector.dtype for vector in inputs] == [CODES["bfloat16"]] * 2 + [CODES["float32"]]
    assert inputs[2].data.tolist() == values["a"][5:].tolist()
    assert inputs[1].data.tobytes() == inputs[0].data.tobytes()
    blocks = [values["b"][5:10], values["b"][10:]]
    expected = b"".join(hash_block(block.tobytes()) for block in blocks)
    assert hashes == {1: expected, 2: expected}


class OnDisk:
    """Files on this disk; a tensor without a file is filled with zeros."""

    def __init__(self, folder: Path, arrays: dict[str, np.ndarray]) -> None:
        self.fds, self.filled = dict[str, int](), list[str]()
        for name, array in arrays.items():
            (folder / name).write_bytes(bytes(64) + array.tobytes())
            self.fds[name] = os.open(folder / name, os.O_RDONLY)

    def descriptor(self, tensor: Any) -> int | None:
        return self.fds.get(tensor.name)

    def fill(self, tensor: Any, offset: int, buffer: memoryview) -> None:
        self.filled.append(tensor.name)
        buffer[:] = bytes(len(buffer))


@pytest.mark.parametrize(
    ("operands", "filled"),
    [
        ((A, B), []),
        ((B, A), []),
        ((A, stored("h", "BF16")), []),
        ((A, stored("missing")), ["missing"]),
        ((A, stored("short")), ["short"]),
        ((A, stored("b", strides=(1, 4))), ["b"]),
        ((A, Rounded.of(B, "BF16", as_input=True)), []),
        ((Rounded.of(B, "BF16", as_input=True), A), []),
    ],
)
@pytest.mark.parametrize("hashed", [(0, 1), (1,), ()])
def test_files_on_this_disk_are_read_and_hashed_by_one_call(
    operands: tuple[Tensor, ...], filled: list[str], hashed: tuple[int, ...], tmp_path: Path
) -> None:
    """Files are read one by one if one of them is missing or too short, or a tensor has strides."""
    values = {"a": np.arange(12, dtype=np.float32), "b": 100 + np.arange(12, dtype=np.float32)}
    halves = bfloat16(values["b"])
    short = np.arange(9, dtype=np.float32)
    files = OnDisk(tmp_path, {**values, "h": halves, "short": short})
    tensor, hashes = merged(*operands), {k: bytearray() for k in hashed}
    call: Any = None
    with_ = Evaluation(files, Buffers(), HeldValues(0), call, {}, hashes)
    try:
        inputs = tensor.inputs(with_, tensor.block_run(range(1, 3)))
    finally:
        for fd in files.fds.values():
            os.close(fd)
    assert set(files.filled) == set(filled)
    assert hashes.keys() == set(hashed)
    for k, operand in enumerate(operands):
        if operand.unrounded.name in filled:
            assert not inputs[k].data.any()
            continue
        before = halves if operand.unrounded.dtype == "BF16" else values[operand.name]
        own = halves if operand.dtype == "BF16" else values[operand.name]
        assert inputs[k].data.tobytes() == own[5:].tobytes()
        if k in hashed:
            blocks = [before[5:10].tobytes(), before[10:].tobytes()]
            assert hashes[k] == b"".join(map(hash_block, blocks))


def test_samples_are_the_first_elements_of_each_block() -> None:
    values = np.arange(40, dtype=np.float32)
    tensor = merged(stored("a", shape=(40,)), Rounded.of(stored("a", shape=(40,)), "BF16"),
                    block_elements=17)  # fmt: skip
    call: Any = None
    with_ = Evaluation(NotedFiles({"a": values}), Buffers(), HeldValues(0), call, {})
    plain, rounded = tensor.inputs(with_, tensor.block_run(range(3), sample=True))
    assert plain.data.tolist() == [0, 1, 17, 18, 34]
    assert rounded.data.tobytes() == bfloat16(plain.data).tobytes()


class Copies:
    """A method that copies its first input, and records its runs."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []

    def compute(self, inputs: list[Vector], run: BlockRun, statistics: Any, out: Vector) -> None:
        assert statistics == "counted before"
        self.runs.append((run.first, run.length))
        out.data[:] = inputs[0].data


@pytest.mark.parametrize(
    ("start", "stop", "runs"),
    [
        (0, 10, [(0, 10)]),
        (5, 12, [(1, 7)]),
        (10, 12, [(2, 2)]),
        (0, 12, [(0, 10), (2, 2)]),
        (0, 4, [(0, 5)]),
        (6, 9, [(1, 5)]),
        (4, 11, [(0, 10), (2, 2)]),
        (0, 11, [(0, 10), (2, 2)]),
    ],
)
def test_runs_of_whole_blocks_are_computed_whatever_is_read(
    start: int, stop: int, runs: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks of 5 elements are computed at once here."""
    monkeypatch.setattr("resumerge.tensors.merged.BLOCK_RUN_BYTES", 2 * 5 * 4)
    values, method = np.arange(12, dtype=np.float32), Copies()
    tensor = merged(A, B)
    call: Any = lambda merged: method  # noqa: E731
    statistics = {tensor: "counted before"}
    files = NotedFiles({"a": values, "b": values})
    with_ = Evaluation(files, Buffers(), HeldValues(0), call, statistics)
    found = np.frombuffer(read(with_, tensor, start, stop), np.float32)
    assert found.tolist() == values[start:stop].tolist()
    assert method.runs == runs
    cuts = start % 5 != 0 or (stop % 5 != 0 and stop != tensor.numel)
    names = {name for _, name in with_.buffers._local.buffers}
    assert ("blocks" in names) == cuts, "of whole blocks nothing is copied"


class OfTorch(Method):
    """The first input, by torch."""

    name = "of_torch"
    summary = "one"

    def block(self, tensor: Any, inputs: list[Any], block: Any, statistics: Any) -> Any:
        return inputs[0]


def test_a_method_that_is_no_kernel_takes_torch_and_its_blocks_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The float32 blocks need memory in addition to the run as it is read."""
    monkeypatch.setitem(METHODS._methods, "of_torch", OfTorch())
    narrow = stored("n", "BF16")
    tensor, of_kernels = (merged(A, narrow, method=name) for name in ("of_torch", "linear"))
    assert [each.uses_torch for each in (tensor, of_kernels)] == [True, False]
    assert [each.needs_torch for each in (tensor, of_kernels)] == [True, False]
    cost = OfTorch.cost
    scratch = 4 * (cost.scratch + 2 * cost.per_input)
    assert tensor.computing_bytes(12) == 4 * 12 + 12 * (4 + 2) + 5 * (2 * 4 + scratch)
    assert replace(tensor, block_elements=100).computing_bytes(12) == (
        4 * 12 + 12 * (4 + 2) + 12 * (2 * 4 + scratch)
    )
