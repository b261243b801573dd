"""Promise: a block is computed from the bytes that are hashed, rounded as the recipe says."""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_plans import plan
from reading import evaluation, read
from safetensors.torch import save_file
from torch import Tensor

from resumerge.digests import HASH_BYTES
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.input_hashes import (
    committed_input_hashes,
    hashed_operands,
    operand_hashes,
)
from resumerge.engine.evaluation.method_failures import refers_to_inputs
from resumerge.engine.shards.checksums import file_checksum, first_mismatch, unit_checksum
from resumerge.kernels.hashes import hash_block
from resumerge.kernels.huge_pages import HUGE_PAGE
from resumerge.kernels.selection.growing_array import GrowingArray
from resumerge.native import BF16, F16, F32, Vector
from resumerge.planning import Plan, estimate
from resumerge.planning.plan import Unit
from resumerge.recipe import ModelRef
from resumerge.sources import open_source
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source
from resumerge.tensors import Gathered, rounded_input
from resumerge.tensors import Tensor as TensorNode
from resumerge.tensors.buffers import REUSED, Buffers
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO, Rows

SIZE, BLOCK = 100, 40
LINEAR = "merge_method: linear\nmodels: [{model: a}, {model: b}]\nparameters: {weight: 0.5}\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", BLOCK)


def written(folder: Path, **models: Mapping[str, Tensor]) -> list[Source]:
    """Write models of these tensors to the disk, by name, and open them."""
    found = []
    for name, tensors in models.items():
        (folder / name).mkdir(parents=True)
        save_file(dict(tensors), folder / name / "model.safetensors", {"format": "pt"})
        opened = open_source(ModelRef(str(folder / name), str(folder / name)))
        found.append(replace(opened, ref=ModelRef(name, name)))
    return found


def random(seed: int, dtype: torch.dtype = torch.float32, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape or (SIZE,), generator=generator).to(dtype)


def evaluated(found: Plan, unit: Unit, *, hashes: bool = True) -> tuple[bytes, list[bytes]]:
    """Return the bytes of a unit, and the input hashes of each of its blocks."""
    evaluator = Evaluator(found, estimate(found), SourceReader(found.sources), hashes=hashes)
    data, seen = [], []
    for index in range(unit.blocks):
        block, inputs = evaluator.compute(unit, range(index, index + 1), {})
        data.append(bytes(block))
        seen.append(inputs)
    whole, hashed = evaluator.compute(unit, range(unit.blocks), {})
    assert (bytes(whole), hashed) == (b"".join(data), b"".join(seen)), "as one run of all blocks"
    return b"".join(data), seen


def bits(values: Tensor) -> bytes:
    return values.view(torch.uint8).numpy().tobytes()


# Rounding


@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cast", [None, "float32", "bfloat16", "float16"])
def test_inputs_are_rounded_once_and_what_is_hashed_is_what_was_read(
    tmp_path: Path, own: torch.dtype, cast: str | None
) -> None:
    a, b = random(1, own), random(2, torch.bfloat16)
    said = (f"dtype: {cast}\n" if cast else "") + "out_dtype: float32\n"
    found = plan(LINEAR + said, *written(tmp_path, a={"x": a}, b={"x": b}))
    data, seen = evaluated(found, found.units[0])
    rounded = [x.to(getattr(torch, cast)).float() if cast else x.float() for x in (a, b)]
    assert data == bits(rounded[0] * 0.5 + rounded[1] * 0.5)
    for index, hashes in enumerate(seen):
        part = slice(index * BLOCK, (index + 1) * BLOCK)
        assert hashes == hash_block(bits(a[part])) + hash_block(bits(b[part]))


@pytest.mark.parametrize(
    ("dtype", "nan"), [("float32", 0x7FC00000), ("float16", 0x7E00), ("bfloat16", 0x7FC0)]
)
def test_a_result_that_is_no_number_has_one_bit_pattern(
    tmp_path: Path, dtype: str, nan: int
) -> None:
    odd = torch.tensor([0x7FC00001, -1, -0x400000], dtype=torch.int32).view(torch.float32)
    recipe = LINEAR + f"out_dtype: {dtype}\n"
    found = plan(recipe, *written(tmp_path, a={"x": odd}, b={"x": torch.ones(3)}))
    data, _ = evaluated(found, found.units[0])
    kind = np.uint32 if dtype == "float32" else np.uint16
    assert np.frombuffer(data, kind).tolist() == [nan] * 3


def tables_of(sources: Sequence[Source], cast: str | None = None) -> tuple[TensorNode, ...]:
    """Return the tensor e of each model, rounded to the recipe's dtype."""
    return tuple(
        rounded_input(source.numbered(number).tensors["e"], cast)
        for number, source in enumerate(sources)
    )


def floats(gathered: TensorNode, sources: Sequence[Source], *, dirty: bool = False) -> list[float]:
    """Return the elements of a tensor; with `dirty`, the buffers have other content before."""
    buffers = Buffers()
    if dirty:
        buffers.take((0, "rows"), 100)[:] = 7
    found = read(evaluation(SourceReader(sources), buffers=buffers), gathered)
    return np.frombuffer(found, np.float32).tolist()


@pytest.mark.parametrize("cast", [None, "bfloat16"])
def test_rows_are_rounded_before_they_are_averaged(tmp_path: Path, cast: str | None) -> None:
    values = [random(n, torch.float32, 6, 5) for n in (1, 2)]
    sources = written(tmp_path, a={"e": values[0]}, b={"e": values[1]})
    members = np.array([0, 1, 0]), np.array([2, 3, 4])
    rows = Rows.of(
        np.array([0, 1, AVERAGE, AVERAGE, MEAN]),
        np.array([5, 0, 0, 1, 0]),
        4,
        (np.array([0, 2, 3]), *members),
    )
    gathered = Gathered.of("e", (5, 5), tables_of(sources, cast), rows)
    first, second = (v.to(getattr(torch, cast)).float() if cast else v for v in values)
    own = [first[5], second[0], (first[2].double() + second[3]).float() / 2, first[4]]
    own[2] = ((first[2].double() + second[3]) / 2).float()
    wanted = torch.stack([*own, torch.stack(own).double().mean(0).float()]).flatten().tolist()
    assert floats(gathered, sources) == wanted
    again = read(evaluation(SourceReader(sources)), gathered, 22, 25)
    assert np.frombuffer(again, np.float32).tolist() == wanted[22:], "the mean alone"


def test_rows_that_no_model_has_are_zero_between_those_that_one_has(tmp_path: Path) -> None:
    """The earlier content of the buffers does not matter."""
    values = [random(n, torch.float32, 6, 5) for n in (1, 2)]
    sources = written(tmp_path, a={"e": values[0]}, b={"e": values[1]})
    none = np.zeros(0, np.int64)
    rows = Rows.of(
        np.array([0, ZERO, 0, 1, ZERO]), np.array([1, 0, 4, 2, 0]), 5,
        (np.zeros(1, np.int64), none, none),
    )  # fmt: skip
    nothing = torch.zeros(5)
    wanted = torch.cat([values[0][1], nothing, values[0][4], values[1][2], nothing])
    gathered = Gathered.of("e", (5, 5), tables_of(sources), rows)
    assert floats(gathered, sources, dirty=True) == wanted.tolist()


def test_two_tensors_of_one_name_have_a_mean_each(tmp_path: Path) -> None:
    values = random(1, torch.float32, 4, 3), random(2, torch.float32, 4, 3)
    sources = written(tmp_path, a={"e": values[0]}, b={"e": values[1]})
    means, none = evaluation(SourceReader(sources), limit=1000), np.zeros(0, np.int64)
    for number, source in enumerate(sources):
        rows = Rows.of(
            np.array([number] * 3 + [MEAN]), np.array([0, 1, 2, 0]), 3,
            (np.zeros(1, np.int64), none, none),
        )  # fmt: skip
        gathered = Gathered.of("e", (4, 3), tables_of(sources), rows)
        found = np.frombuffer(read(means, gathered, 9, 12), np.float32)
        wanted = values[number][:3].double().mean(0).float()
        assert found.tolist() == wanted.tolist(), source.ref


# Copies, and tensors of nothing


def test_a_copy_is_hashed_by_its_output_alone(tmp_path: Path) -> None:
    values = random(3)
    found = plan(COPY, *written(tmp_path, a={"x": values}))
    [unit] = found.units
    assert evaluated(found, unit) == (bits(values), [b""] * 3)
    evaluator = Evaluator(found, estimate(found), SourceReader(found.sources))
    assert not evaluator.needs_preparation(unit)
    assert unit.is_copied
    assert evaluator.input_hashes(unit, 1, [0]) == hash_block(bits(values[BLOCK : 2 * BLOCK]))


def test_an_empty_tensor_has_one_block_of_nothing(tmp_path: Path) -> None:
    nothing = torch.zeros(0, 4)
    models = written(tmp_path, a={"x": nothing}, b={"x": nothing})
    for recipe in (LINEAR, COPY, LINEAR.replace("linear", "karcher")):
        found = plan(recipe, *models)
        [unit] = found.units
        evaluator = Evaluator(found, estimate(found), SourceReader(found.sources))
        assert evaluated(found, unit) == (b"", [b""])
        assert not evaluator.needs_preparation(unit)
        assert evaluator.input_hashes(unit, 0, [0]) == b""


def test_methods_with_reductions_need_statistics(tmp_path: Path) -> None:
    models = written(tmp_path, a={"x": random(1)}, b={"x": random(2)})
    for method, needed in (("linear", False), ("karcher", True), ("passthrough", False)):
        recipe = COPY if method == "passthrough" else LINEAR.replace("linear", method)
        found = plan(recipe, *models)
        evaluator = Evaluator(found, estimate(found), SourceReader(found.sources))
        assert evaluator.needs_preparation(found.units[0]) is needed


# Hashes


def test_only_local_operands_are_hashed_and_they_are_read_again_alike(tmp_path: Path) -> None:
    a, b = written(tmp_path, a={"x": random(1)}, b={"x": random(2, torch.bfloat16)})
    both = plan(LINEAR, a, b)
    found = plan(LINEAR, replace(a, kind="hub"), b)
    [unit] = found.units
    assert hashed_operands(both, unit).keys() == {0, 1}
    assert hashed_operands(found, unit) == {1: {(1, "model.safetensors")}}
    _, one = evaluated(found, unit)
    _, two = evaluated(both, both.units[0])
    assert [len(hashes) for hashes in one] == [HASH_BYTES] * 3
    assert [hashes[HASH_BYTES:] for hashes in two] == one
    assert evaluated(both, both.units[0], hashes=False)[1] == [b""] * 3
    evaluator = Evaluator(both, estimate(both), SourceReader(both.sources))
    for chosen in ([0], [1], [0, 1]):
        again = [evaluator.input_hashes(both.units[0], index, chosen) for index in range(3)]
        wanted = [b"".join(h[k * HASH_BYTES : (k + 1) * HASH_BYTES] for k in chosen) for h in two]
        assert again == wanted
    every = b"".join(two)
    assert list(operand_hashes(every, 1, 2)) == one
    assert list(operand_hashes(every, 0, 2)) == [hashes[:HASH_BYTES] for hashes in two]


def test_the_hashes_of_a_copy_are_those_of_its_output(tmp_path: Path) -> None:
    a, b = written(tmp_path, a={"x": random(1)}, b={"x": random(2)})
    row = {"block_hashes": b"output", "input_hashes": b"inputs"}
    assert committed_input_hashes(plan(LINEAR, a, b).units[0], row) == b"inputs"
    assert committed_input_hashes(plan(COPY, a).units[0], row) == b"output"
    assert committed_input_hashes(plan(COPY, a).units[0], {"block_hashes": None}) == b""


def test_the_first_block_that_differs_is_found(tmp_path: Path) -> None:
    data, size = bytes(range(200)) * 2, 4 * BLOCK
    [unit] = plan(COPY, *written(tmp_path, a={"x": random(1)})).units
    path = tmp_path / "shard"
    content = bytes(unit.offset) + data
    path.write_bytes(content)
    hashes = b"".join(hash_block(data[k : k + size]) for k in range(0, len(data), size))
    assert len(hashes) == 3 * HASH_BYTES
    with path.open("rb") as file:
        assert first_mismatch(file.fileno(), unit, hashes) is None
        assert first_mismatch(file.fileno(), unit, b"") is None
    for index in range(3):
        at = unit.offset + index * size
        path.write_bytes(content[:at] + b"?" + content[at + 1 :])
        with path.open("rb") as file:
            assert first_mismatch(file.fileno(), unit, hashes) == index
            committed = hashes[: index * HASH_BYTES]
            assert first_mismatch(file.fileno(), unit, committed) is None


def test_a_long_file_has_the_hash_of_all_its_bytes(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes((1 << 20) + 17)
    (tmp_path / "file").write_bytes(data)
    assert file_checksum(tmp_path / "file") == hash_block(data).hex()
    assert unit_checksum(hash_block(data)) == hash_block(hash_block(data)).hex()


# Memory


def test_a_buffer_is_used_again_by_its_thread_under_its_name() -> None:
    buffers = Buffers()
    large = buffers.take("a", 100)
    small = buffers.take("a", 10)
    assert (len(large), len(small)) == (100, 10)
    assert np.shares_memory(large, small)
    assert not np.shares_memory(large, buffers.take("b", 100))
    assert len(buffers.take("a", 1000)) == 1000
    vector = buffers.vector("a", 20, BF16)
    assert (len(vector), vector.data.dtype, vector.dtype) == (20, np.uint16, BF16)
    assert np.shares_memory(vector.data, buffers.take("a", 40))
    assert buffers.vector("a", 20, BF16) is vector
    for length, dtype in ((19, BF16), (20, F16), (20, BF16), (2000, BF16), (20, BF16)):
        other = buffers.vector("a", length, dtype)
        assert (len(other), other.dtype) == (length, dtype)
    others: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: others.append(buffers.take("a", 1000)))
    thread.start()
    thread.join()
    assert not np.shares_memory(others[0], buffers.take("a", 1000))


def test_a_buffer_for_a_whole_tensor_is_not_kept() -> None:
    buffers = Buffers()
    assert np.shares_memory(buffers.take("a", REUSED), buffers.take("a", REUSED))
    large = [buffers.take("b", REUSED + 1) for _ in range(2)]
    assert not np.shares_memory(*large)
    vectors = [buffers.vector("c", REUSED // 4 + 1, F32).data for _ in range(2)]
    assert not np.shares_memory(*vectors)


def test_a_result_that_lies_in_an_input_is_recognized() -> None:
    arrays = [np.zeros(10, np.float32) for _ in range(2)]
    inputs, whole = [Vector(array) for array in arrays], np.zeros(30, np.float32)
    first, second = (torch.from_numpy(array) for array in arrays)
    for kept in (first, second[9:], [1, (arrays[1][3:],)], first.view(2, 5), inputs[0], arrays[0]):
        assert refers_to_inputs(kept, inputs)
    beside: Sequence[object] = (whole, 3.0, None, {"a": first.sum()}, first.clone(), Vector(whole))
    for fine in beside:
        assert not refers_to_inputs(fine, inputs)
    assert not refers_to_inputs(whole[10:], [Vector(whole[:10])]), "what begins where an input ends"


def test_the_buffer_of_a_run_is_in_huge_pages() -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this system has no transparent huge pages")
    buffer = Buffers().take("a", 2 * HUGE_PAGE + 5)
    buffer[:] = 1
    assert len(buffer) == 2 * HUGE_PAGE + 5
    assert buffer.ctypes.data % HUGE_PAGE == 0
    assert "hg" in flags_of(buffer.ctypes.data)
    assert "hg" in flags_of(buffer.ctypes.data + 2 * HUGE_PAGE - 1)


def test_of_an_array_with_room_to_grow_only_what_is_used_takes_memory() -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this system has no transparent huge pages")
    keys = GrowingArray(HUGE_PAGE, most=True)
    keys.append(np.ones(10, np.uint32))
    assert "nh" in flags_of(keys.whole.ctypes.data), "not even where all memory is in huge pages"


@pytest.mark.parametrize("error", [errno.ENOMEM, errno.EINVAL])
def test_without_huge_pages_a_buffer_is_in_small_ones(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refused(*args: object, **more: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(mmap, "mmap", refused)
    buffer = Buffers().take("a", HUGE_PAGE)
    buffer[:] = 1
    assert len(buffer) == HUGE_PAGE


def flags_of(address: int) -> list[str]:
    """Return the kernel's flags of the mapping of an address: ``hg`` for huge pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            first, last = (int(bound, 16) for bound in bounds.groups())
            inside = first <= address < last
        elif inside and line.startswith("VmFlags:"):
            return line.split()
    raise AssertionError("no such mapping")
