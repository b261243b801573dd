"""Promise: threads share what tensors are computed with: buffers of their own that are used again,
values that are held within a limit, and evaluations that go one level deeper."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from resumerge.native import CODES, KINDS, Vector
from resumerge.tensors import buffers as buffers_module
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import BITS, BY_TORCH_NAME, FLOATS, nbytes
from resumerge.tensors.evaluation import Evaluation, HeldValues, as_vector, bytes_of, code_of

F32, F16 = CODES["float32"], CODES["float16"]


def same_memory(one: np.ndarray, other: np.ndarray) -> bool:
    return one.ctypes.data == other.ctypes.data


def test_a_buffer_is_used_again_and_grows() -> None:
    buffers = Buffers()
    first = buffers.take("a", 100)
    assert (first.dtype, len(first)) == (np.uint8, 100)
    assert same_memory(buffers.take("a", 40), first) and len(buffers.take("a", 40)) == 40
    assert not same_memory(buffers.take("b", 100), first), "another name"
    larger = buffers.take("a", 9000)
    assert len(larger) == 9000 and same_memory(buffers.take("a", 8999), larger)
    larger[:] = 1  # all of it is there


def test_each_thread_has_buffers_of_its_own() -> None:
    buffers, found = Buffers(), list[Any]()

    def take() -> None:
        found.append((buffers.take("a", 100), buffers.vector("v", 5, F32)))

    take()
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    (mine, vector), (theirs, other) = found
    assert not same_memory(mine, theirs) and vector is not other


def test_what_is_larger_than_most_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers_module, "REUSED", 64)
    buffers = Buffers()
    small, large = buffers.take("a", 64), buffers.take("a", 65)
    assert same_memory(buffers.take("a", 64), small)
    assert not same_memory(buffers.take("a", 65), large)
    vector = buffers.vector("v", 17, F32)
    assert buffers.vector("v", 17, F32) is not vector
    kept = buffers.vector("w", 16, F32)
    assert buffers.vector("w", 16, F32) is kept


def test_a_vector_is_made_once_for_runs_of_one_length_and_type() -> None:
    buffers = Buffers()
    first = buffers.vector("v", 20, F32)
    assert (len(first), first.dtype, first.data.dtype) == (20, F32, np.float32)
    assert buffers.vector("v", 20, F32) is first
    for length, dtype in ((20, F16), (19, F16), (21, F16), (20, F32), (10, CODES["float64"])):
        vector = buffers.vector("v", length, dtype)
        assert (len(vector), vector.dtype) == (length, dtype)
        assert vector.data.dtype == KINDS[dtype]
        assert same_memory(vector.data, buffers.take("v", 1)), "in the same buffer"


def test_values_are_held_up_to_the_limit_and_the_last_one_always() -> None:
    held, made = HeldValues(10), list[str]()

    def get(key: str, size: int) -> str:
        return held.get(key, size, lambda: made.append(key) or key)  # type: ignore[func-returns-value]

    assert [get(key, size) for key, size in (("a", 4), ("b", 3), ("c", 3), ("a", 4))] == [*"abca"]
    assert made == [*"abc"], "as many bytes as the limit"
    get("d", 1)  # which b makes room for: a was asked for after it
    assert [get(key, 3) for key in "acd"] == [*"acd"] and made == [*"abcd"]
    get("e", 11)
    get("e", 11)
    assert made == [*"abcde"], "larger than the limit, alone"
    get("c", 3)
    assert made == [*"abcdec"], "all others were dropped for it"


def test_a_value_is_made_by_one_thread_and_the_others_wait() -> None:
    held, made, begun, go_on = HeldValues(10), list[int](), threading.Event(), threading.Event()

    def make() -> str:
        made.append(1)
        begun.set()
        assert go_on.wait(60)
        return "value"

    found = list[str]()
    threads = [
        threading.Thread(target=lambda: found.append(held.get("a", 1, make))) for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert found == ["value"] * 2 and made == [1]


def means(**given: Any) -> tuple[Evaluation, dict[str, Any]]:
    objects: dict[str, Any] = {
        "files": object(),
        "buffers": Buffers(),
        "held": HeldValues(0),
        "backend_of": object(),
        "preparation": {"merged": 1},
    }
    return Evaluation(**objects, **given), objects


def test_one_level_deeper_everything_is_shared_but_buffers_and_what_is_of_the_root() -> None:
    root, given = means(hashes={0: bytearray()}, measurements=[], block_elements=5, device="mps")
    inner, deeper = root.inner(), root.inner().inner()
    for with_ in (inner, deeper):
        assert with_.files is given["files"] and with_.held is given["held"]
        assert with_.backend_of is given["backend_of"] and with_.preparation is given["preparation"]
        assert with_.device == "mps"
        assert not with_.hashes and with_.measurements is None and not with_.measures
    levels = [root, inner, deeper]
    taken = [with_.take("a", 10) for with_ in levels]
    assert len({each.ctypes.data for each in taken}) == 3
    assert all(same_memory(each, with_.take("a", 10)) for each, with_ in zip(taken, levels))
    assert same_memory(taken[1], root.inner().take("a", 10)), "one after the other"
    vectors = [with_.vector("v", 10, F32) for with_ in levels]
    assert len({vector.data.ctypes.data for vector in vectors}) == 3
    assert root.vector("v", 10, F32) is vectors[0]
    one, _ = means()
    assert one.device == "cpu" and not one.measures


def test_what_is_measured_goes_to_a_function_or_nowhere() -> None:
    found = list[np.ndarray]()
    root, _ = means(measurements=found, block_elements=7)
    assert root.measures
    runs = list[Any]()
    comparing = root.comparing(lambda *run: runs.append(run), 3)
    assert (comparing.measures, comparing.block_elements, root.block_elements) == (True, 3, 7)
    assert comparing.measurements is None and root.measurements is found
    vectors = [Vector(np.zeros(2, np.float32)) for _ in range(3)]
    comparing.measure(vectors[0], vectors[1:2], vectors[2])
    assert runs == [(vectors[0], vectors[1:2], vectors[2])] and not found
    nowhere = root.comparing(None)
    assert not nowhere.measures and not nowhere.inner().measures
    nowhere.measure(vectors[0], vectors[1:2], vectors[2])
    assert len(runs) == 1 and not found
    assert same_memory(root.take("a", 9), nowhere.take("a", 9)), "at the same depth"


def test_bits_and_bytes_are_those_of_safetensors() -> None:
    """The reference is `Dtype::bitsize` in crates/safetensors."""
    by_bits = {
        4: {"F4"},
        6: {"F6_E2M3", "F6_E3M2"},
        8: {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"},
        16: {"I16", "U16", "F16", "BF16"},
        32: {"I32", "U32", "F32"},
        64: {"C64", "F64", "I64", "U64"},
    }
    assert {dtype: bits for bits, some in by_bits.items() for dtype in some} == BITS
    assert [nbytes("F4", count) for count in range(5)] == [0, 1, 1, 2, 2]
    assert [nbytes("F6_E2M3", count) for count in range(5)] == [0, 1, 2, 3, 3]
    assert (nbytes("BF16", 3), nbytes("C64", 3), nbytes("BOOL", 3)) == (6, 24, 3)


NUMBERS = [-2.0, 0.25, 448.0, 1.0]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_the_bits_of_torchs_type_of_that_name(dtype: str) -> None:
    import torch
    from safetensors.torch import _TYPES

    kind = getattr(torch, FLOATS[dtype])
    assert kind is _TYPES[dtype]
    values = torch.tensor(NUMBERS).to(kind)
    data = values.view(torch.uint8).numpy()
    assert len(data) == nbytes(dtype, len(NUMBERS))
    vector = as_vector(data, dtype)
    assert (vector.dtype, len(vector)) == (code_of(dtype), len(NUMBERS))
    assert bytes_of(vector).tobytes() == data.tobytes()
    assert same_memory(bytes_of(vector), data)
    assert BY_TORCH_NAME[FLOATS[dtype]] == dtype
