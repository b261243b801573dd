"""Promise: a tree of tensors answers for all of its nodes: in which order they are computed, how
much is read together, which type a merge takes, and which libraries it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_kind import NotedFiles, bfloat16, told
from reading import evaluation, read

from resumerge.tensors import (
    Adapted,
    Computed,
    Encoded,
    Halved,
    Interleaved,
    Merged,
    Quantised,
    Rounded,
    Sliced,
    Spilled,
    Stacked,
    Stored,
    Tensor,
    Tiled,
    Transposed,
    rounded_input,
    rounded_once,
    steps_of,
    stored_in,
    with_stored,
)
from resumerge.tensors import tensor as tensor_module
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.parts import part_of


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


def test_nodes_come_after_those_that_they_are_computed_from() -> None:
    inner = Rounded.of(A, "BF16")
    tree = merged(inner, Stacked.of("s", (4, 3), (Sliced.of("x", (2, 3), B), C_HALF)), inner)
    names = [type(node).__name__ for node in tree.nodes()]
    first = ["Stored", "Rounded"]
    assert names == [*first, "Stored", "Sliced", "Stored", "Stacked", *first, "Merged"]
    assert tree.tree_size == len(names) == 9
    assert [leaf.name for leaf in stored_in(tree)] == ["a", "b", "h", "a"]


C_HALF = stored("h", shape=(2, 3))


def test_only_what_is_another_is_made_again() -> None:
    same, other = Rounded.of(A, "BF16"), Rounded.of(B, "BF16")
    tree = merged(same, other)
    changed = with_stored(tree, lambda leaf: replace(leaf, file="g") if leaf is B else leaf)
    assert isinstance(changed, Merged)
    assert changed.operands[0] is same
    assert [leaf.file for leaf in stored_in(changed)] == ["f", "g"]
    assert with_stored(tree, lambda leaf: leaf) is tree


def test_a_tensor_of_another_source_or_place_is_another() -> None:
    """Tensors that values are held for are equal only to themselves."""
    for other in ({"source": 1}, {"file": "g"}, {"offset": 0}, {"strides": (1, 4)}):
        assert replace(A, **other) != A
    assert stored("a") == A and Rounded.of(stored("a"), "BF16") == Rounded.of(A, "BF16")
    assert Rounded.of(A, "BF16") != Rounded.of(A, "BF16", as_input=True)
    assert Transposed.of(A) != Transposed.of(A) and merged(A, B) != merged(A, B)
    assert Spilled.of(A, 5) != Spilled.of(A, 5) and Halved.of(A, 2) != Halved.of(A, 2)


def test_blocks_are_read_together_by_the_widest_tensor_of_the_tree() -> None:
    narrow, wide = stored("n", "BF16"), stored("w", "F64")
    assert narrow.blocks_at_once(100, 800) == 4
    assert Rounded.of(wide, "BF16").blocks_at_once(100, 800) == 1
    for operands in ((narrow, Rounded.of(wide, "BF16")), (Rounded.of(wide, "BF16"), narrow)):
        assert merged(*operands, dtype="BF16").blocks_at_once(100, 1600) == 2
    assert stored("c", "F4").blocks_at_once(100, 800) == 16
    assert wide.blocks_at_once(100, 1) == 1, "one at least"
    codes = Quantised.of("q", stored("w", shape=(4, 8)), _int4(), (1, 8))
    assert codes.blocks_at_once(100, 1600) == 2, "of half a byte each, from float32"
    assert codes.blocks_at_once(100, 1) == 1
    of_blocks = encoded(stored("w", shape=(4, 8)))
    assert of_blocks.blocks_at_once(36, 4 * 32 * 3) == 3, "9 bytes are 8 numbers"
    assert of_blocks.blocks_at_once(1, 1) == 1


def _int4() -> Any:
    from resumerge.kernels.quantised import Code
    from resumerge.tensors.quantised.form import Form

    return Form("int4", Code.INT4, 7.5, "BF16")


def encoded(operand: Tensor) -> Encoded:
    return Encoded(
        name="e",
        dtype="U8",
        shape=(operand.numel // 8 * 9,),
        scheme="made up",
        operand=operand,
        elements=8,
        block_bytes=9,
        encode=lambda values, blocks: None,
        decode=lambda blocks, values: None,
        milliseconds=2.0,
    )


def test_a_tensor_as_float32_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(12, dtype=np.float32)
    for piece in (1, 5, 12, 100):
        monkeypatch.setattr(tensor_module, "PIECE_ELEMENTS", piece)
        tensor = stored("w", "BF16")
        with_ = evaluation(NotedFiles({"w": bfloat16(values)}))
        assert tensor.floats(with_, 2, 11).tolist() == values[2:11].tolist()
        out = np.zeros(9, np.float32)
        assert tensor.floats(with_, 2, 11, out) is out
        assert out.tolist() == values[2:11].tolist()
    assert not len(tensor.floats(with_, 3, 3))


def adapted(dtype: str) -> Adapted:
    weight = stored("w", dtype)
    a, b = stored("a", shape=(2, 3), source=3), stored("b", shape=(4, 2), source=3)
    return Adapted.of("w", weight, a, b, 1.0, False)


@pytest.mark.parametrize(
    ("operand", "dtype", "types"),
    [
        (stored("w", "F32"), None, ("F32",)),
        (stored("w", "F32"), "float32", ("F32",)),
        (stored("w", "F64"), "float32", ("F64",)),
        (stored("w", "F32"), "float64", ("F32",)),
        (stored("w", "BF16"), "bfloat16", ("BF16",)),
        (stored("w", "F32"), "bfloat16", ("BF16", "F32")),
        (adapted("BF16"), None, ("F32",)),
        (adapted("BF16"), "float32", ("F32",)),
        (adapted("BF16"), "bfloat16", ("BF16",)),
        (adapted("BF16"), "float16", ("F16", "F32")),
        (adapted("F64"), "float16", ("F16", "F64")),
    ],
    ids=str,
)
def test_an_operand_is_rounded_once_to_the_recipes_type(
    operand: Tensor, dtype: str | None, types: tuple[str, ...]
) -> None:
    """The hashes are those of the operand before it is rounded, unless its model has that type."""
    found = rounded_input(operand, dtype)
    assert (
        found.dtype,
        *([found.unrounded.dtype] if found.unrounded is not found else []),
    ) == types
    assert found.name == operand.name and found.shape == operand.shape


def test_a_tensor_of_a_model_is_rounded_once_and_is_none_before() -> None:
    tensor = rounded_once(adapted("BF16"), "F16")
    assert isinstance(tensor, Rounded) and tensor.operand.dtype == "F32"
    assert tensor.unrounded is tensor and not tensor.as_input
    assert rounded_once(adapted("BF16"), "BF16").dtype == "BF16"
    assert rounded_once(A, "F32") is A
    assert rounded_once(A, "BF16", as_input=True).unrounded is A
    kept = Rounded.of(A, "BF16", takes_operand=True)
    assert rounded_once(kept, "F16").children() == (A,)


def test_of_the_same_type_it_is_the_tensor_itself() -> None:
    packed = Stacked.of("s", (8, 3), (A, B))
    assert packed.exact is packed and A.exact is A and A.unrounded is A
    row = Sliced.of("row", (3,), adapted("BF16"), 3)
    assert (row.exact.dtype, row.exact.shape, row.exact.name) == ("F32", (3,), "row")
    assert isinstance(row.exact, Sliced) and row.exact.first == 3
    assert Sliced.of("a", (4, 3), A) is A
    assert Sliced.of("a", (3, 4), A) is not A and Sliced.of("other", (4, 3), A) is not A
    mixed = Stacked.of("s", (12, 3), (stored("x", "BF16"), adapted("BF16"), stored("y", "BF16")))
    assert [part.dtype for part in mixed.exact.children()] == ["F32"] * 3
    assert mixed.exact.shape == (12, 3)
    replaced = Rounded.of(stored("y", "F32"), "F8_E4M3", takes_operand=True)
    assert Stacked.of("s", (8, 3), (stored("x", "F8_E4M3"), replaced)).exact.dtype == "F32"


class Numbered:
    """A step whose pieces record the order in which they are done."""

    nbytes, pieces, key = 100, 3, "numbered"
    libraries: Mapping[str, str] = {}

    def tensors(self, part: int) -> tuple[Tensor, ...]:
        return ((A, B, C), (B,), (), (A, C))[part]

    def prepare(self, evaluation: Evaluation, threads: int) -> Any:
        assert threads == 1 and not evaluation.measures
        taken = evaluation.take("a", 1)
        return lambda state, piece: state | {f"{piece}": taken, "done": state["done"] + [piece]}

    def begin(self, evaluation: Evaluation) -> Any:
        return {"done": []}

    def result(self, state: Any) -> Any:
        assert state["done"] == [0, 1, 2]
        return [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([9, 8], np.float32)]


def test_a_part_of_a_steps_result_is_that_of_all_pieces_in_order() -> None:
    step: Any = Numbered()
    first, second = (
        Computed.of("p", (2, 3), step, 0),
        Computed.of("q", (2,), step, 1),
    )
    with_ = replace(evaluation(NotedFiles({}), limit=100), measurements=[])
    asked, get = set[Any](), with_.held.get

    def noted(key: Any, nbytes: int, make: Callable[[], Any]) -> Any:
        asked.add((key, nbytes))
        return get(key, nbytes, make)

    with_.held.get = noted  # type: ignore[method-assign, assignment]
    assert np.frombuffer(read(with_, first, 2, 5), np.float32).tolist() == [2, 3, 4]
    assert np.frombuffer(read(with_, second), np.float32).tolist() == [9, 8]
    assert asked == {(step, 100)}, "both parts are of one result"
    assert first.children() == (A, B, C) and second.children() == (B,)
    assert not told(first.reads(0, 6)) and not told(first.no_longer_read(0, 6))
    assert first.working_bytes(9) == 0 == first.held_bytes
    assert first.as_json() == {"step": "numbered", "part": 0, "shape": [2, 3]}
    assert steps_of(merged(first, Rounded.of(first, "BF16"))) == {step}
    assert not steps_of(merged(A, B))


def test_what_computes_with_torch_says_so() -> None:
    plain, with_torch = Numbered(), Numbered()
    with_torch.libraries = {"torch": "2"}
    parts: list[Any] = [Computed.of("p", (2, 3), step, 0) for step in (plain, with_torch)]  # type: ignore[arg-type]
    assert [part.uses_torch for part in parts] == [False, True]
    assert [part.needs_torch for part in parts] == [False, True]
    assert (A.uses_torch, A.needs_torch) == (False, False)
    assert (adapted("F32").uses_torch, adapted("F32").needs_torch) == (False, True)
    assert not merged(A, B).uses_torch and not merged(A, B).needs_torch


def test_reads_of_a_step_are_those_of_all_its_tensors() -> None:
    from resumerge.tensors.computed import Step

    found = told(Step.reads(Numbered()))  # type: ignore[arg-type]
    assert found == {(name, k) for name in "ac" for k in range(12)}


@pytest.mark.parametrize("strides", [None, (12, 3, 1)])
def test_a_part_of_what_is_computed_or_strided_is_a_slice(strides: Any) -> None:
    """A part of a tensor whose elements are contiguous in a file is a place in that file."""
    whole = stored("w", "BF16", (3, 4, 3), strides=strides)
    part = part_of(whole, "p", (4, 3), 2)
    assert (part.name, part.dtype, part.shape) == ("p", "BF16", (4, 3))
    if strides:
        assert isinstance(part, Sliced) and (part.whole, part.first) == (whole, 24)
    else:
        assert part == replace(whole, name="p", shape=(4, 3), offset=64 + 2 * 24)
    computed = Rounded.of(whole, "F16")
    assert told(part_of(computed, "p", (4, 3), 1).reads(0, 12)) == {("w", k) for k in range(12, 24)}


@pytest.mark.parametrize("make", [Halved.of, Interleaved.of])
def test_rows_are_in_whole_groups_of_an_even_number(make: Callable[[Tensor, int], Tensor]) -> None:
    for group in (3, 8):
        with pytest.raises(AssertionError):
            make(stored("w", shape=(12, 2)), group)


def test_tiles_and_parts_fill_what_they_are() -> None:
    with pytest.raises(AssertionError):
        Tiled.of("t", (5, 3), (A,), ((0, 0),))
    with pytest.raises(AssertionError):
        Stacked.of("s", (7, 3), (A, B))
