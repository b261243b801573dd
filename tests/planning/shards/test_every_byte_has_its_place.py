"""Promise: the place of each byte, and what decides it, are known before anything is computed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_plans import llama, plan, tensor

from resumerge.kernels.blocks import Block, BlockRun
from resumerge.methods import METHODS
from resumerge.output_path import is_shard_name, shard_name
from resumerge.planning import NUMERICS, Plan, estimate
from resumerge.planning.fingerprint import changes, fingerprint, fingerprint_parts
from resumerge.planning.plan import Unit
from resumerge.planning.shards import pack
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.target import BLOCK_ELEMENTS, Target, block_elements

COPY = tensor("x", (1,))


def targets(*facts: tuple[str, str, int]) -> list[Target]:
    """Return targets with these names, dtypes and numbers of elements."""
    return [
        Target(n, dtype, (count,), BLOCK_ELEMENTS, COPY, {n: (count,)}) for n, dtype, count in facts
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from(["F32", "BF16", "U8", "F64"]), st.integers(0, 50)), min_size=1
    ),
    st.integers(1, 300),
)
def test_any_tensors(facts: list[tuple[str, int]], shard_size: int) -> None:
    wanted = targets(*((f"t{n}", dtype, count) for n, (dtype, count) in enumerate(facts)))
    units, shards = pack(wanted, shard_size)
    assert {unit.name for unit in units} == {target.name for target in wanted}
    assert [unit.number for unit in units] == list(range(len(units)))
    assert [shard.name for shard in shards] == [
        shard_name(n, len(shards)) for n in range(len(shards))
    ]
    assert all(is_shard_name(shard.name) for shard in shards)
    assert [(s.first, s.last) for s in shards] == list(
        pairwise([0, *(s.last for s in shards)])
    ) and shards[-1].last == len(units)
    order = [int(unit.name[1:]) for unit in units]
    for shard, following in pairwise([*shards, None]):
        assert shard is not None
        inside = units[shard.first : shard.last]
        length = int.from_bytes(shard.header[:8], "little")
        entries = json.loads(shard.header[8:])
        assert len(shard.header) == 8 + length and len(shard.header) % 8 == 0
        assert entries.pop("__metadata__") == {"format": "pt"}
        at = len(shard.header)
        for unit in inside:
            assert unit.shard == shard.number and unit.offset == at
            assert unit.offset % (BITS[unit.dtype] // 8) == 0, "aligned to its element size"
            begin = at - len(shard.header)
            assert entries.pop(unit.name) == {
                "dtype": unit.dtype,
                "shape": list(unit.shape),
                "data_offsets": [begin, begin + unit.nbytes],
            }
            at += unit.nbytes
        assert not entries and shard.nbytes == at
        data = sum(unit.nbytes for unit in inside)
        assert data <= shard_size or len([u for u in inside if u.nbytes]) == 1
        assert order[shard.first : shard.last] == sorted(
            order[shard.first : shard.last], key=lambda n: (-BITS[facts[n][0]], n)
        ), "in order within a dtype"
        if following is not None:
            first = min(order[following.first : following.last])
            assert max(order[shard.first : shard.last]) < first, "shards are filled in order"
            assert data + wanted[first].nbytes > shard_size, "it was full"


def test_a_header_to_the_byte() -> None:
    [_], [shard] = pack(targets(("é", "BF16", 3)), 1000)
    text = '{"__metadata__":{"format":"pt"},"é":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}}'
    padded = text.encode() + b" " * (-len(text.encode()) % 8)
    assert shard.header == len(padded).to_bytes(8, "little") + padded


def test_names_of_shards() -> None:
    assert shard_name(0, 1) == "model.safetensors"
    assert shard_name(0, 2) == "model-00001-of-00002.safetensors"


def test_several_tensors_of_one_unit_follow_each_other() -> None:
    packed = Target("experts", "F32", (2, 3), BLOCK_ELEMENTS, COPY, {"e.0": (3,), "e.1": (3,)})
    [unit], [shard] = pack([packed], 1000)
    entries = json.loads(shard.header[8:])
    assert [entries[name]["data_offsets"] for name in ("e.0", "e.1")] == [[0, 12], [12, 24]]
    assert unit.nbytes == 24


def unit_of(numel: int, size: int) -> Unit:
    """Return a unit in blocks of `size` elements, at byte 100 of its shard."""
    return Unit(
        number=0,
        name="x",
        dtype="BF16",
        shape=(numel,),
        shard=0,
        offset=100,
        nbytes=2 * numel,
        block_elements=size,
        expression=COPY,
    )


@pytest.mark.parametrize(
    ("numel", "size", "expected"),
    [
        (0, 10, [(0, 0)]),
        (1, 10, [(0, 1)]),
        (10, 10, [(0, 10)]),
        (11, 10, [(0, 10), (10, 11)]),
        (30, 10, [(0, 10), (10, 20), (20, 30)]),
    ],
)
def test_blocks_of_a_unit(numel: int, size: int, expected: list[tuple[int, int]]) -> None:
    unit = unit_of(numel, size)
    blocks = unit.block_run(range(unit.blocks)).in_tensor() or [Block(0, 0, 0)]
    assert [(block.start, block.stop) for block in blocks] == expected
    assert [block.index for block in blocks] == list(range(len(expected)))
    places = [unit.block_span(index) for index in range(unit.blocks)]
    assert places == [(100 + 2 * start, 2 * (stop - start)) for start, stop in expected]


@given(st.integers(1, 700), st.integers(1, 50), st.data())
def test_a_run_reads_its_blocks_or_samples_of_them(
    numel: int, size: int, data: st.DataObject
) -> None:
    unit = unit_of(numel, size)
    first = data.draw(st.integers(0, unit.blocks - 1))
    indices = range(first, data.draw(st.integers(first + 1, unit.blocks)))
    bounds = [(k * size, min((k + 1) * size, numel)) for k in indices]
    run, sample = unit.block_run(indices), BlockRun.of(numel, size, indices, sample=True)
    assert run == BlockRun(first, size, bounds[-1][1] - bounds[0][0])
    assert run.ranges() == [(bounds[0][0], bounds[-1][1])]
    sampled = [(start, start + -(-(stop - start) // 16)) for start, stop in bounds]
    for found, expected in ((run, bounds), (sample, sampled)):
        blocks = [Block(k, *where) for k, where in zip(indices, expected)]
        assert found.in_tensor() == blocks
        assert [b.stop - b.start for b in found.blocks()] == [b.stop - b.start for b in blocks]
        assert found.length == sum(b.stop - b.start for b in blocks)
        assert len(found) == len(indices)
        read = [k for start, stop in found.ranges() for k in range(start, stop)]
        assert read == [k for b in blocks for k in range(b.start, b.stop)]


def test_a_block_is_whole_rows_where_rows_are_not_split() -> None:
    assert block_elements(None) == block_elements(0) == 1 << 18
    assert block_elements(3) == 3 * ((1 << 18) // 3)
    assert block_elements(1 << 18) == 1 << 18
    assert block_elements((1 << 18) + 1) == (1 << 18) + 1


# What decides the bytes

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"


def linear(recipe: str = LINEAR, **more: Any) -> Plan:
    return plan(recipe, llama("a"), llama("b"), **more)


DECIDES: dict[str, Plan] = {
    "seed": linear(seed=1),
    "shard size": linear(shard_size=1000),
    "recipe": linear(LINEAR.replace("weight: 1", "weight: 2")),
    "method": linear("merge_method: karcher\nmodels: [{model: a}, {model: b}]\n"),
    "dtype": linear(LINEAR + "dtype: bfloat16\n"),
    "source": plan(LINEAR, llama("a"), replace(llama("b"), revision="other")),
    "content": plan(
        LINEAR, llama("a"), replace(llama("b"), files={"m.safetensors": replace(
            llama("b").files["m.safetensors"], identity={"header": "another"})})
    ),
    "template": replace(linear(), chat_template="{{ x }}"),
    "tokenizer": replace(linear(), tokenizers={"a": "digest"}),
    "a stage": replace(linear(), stages=(linear(),)),
    "a kept stage": replace(linear(), kept=("first",)),
    "a variant": replace(linear(), variants={"one": linear()}),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDES)
def test_what_decides_the_bytes_is_in_the_fingerprint(name: str) -> None:
    before, after = fingerprint_parts(linear()), fingerprint_parts(DECIDES[name])
    assert fingerprint(before) != fingerprint(after)
    assert changes(before, after)


def test_what_decides_nothing_is_not() -> None:
    before = fingerprint_parts(linear())
    assert before["numerics version"] == NUMERICS
    assert before["block"] == BLOCK_ELEMENTS
    same = linear("# a comment\n" + LINEAR.replace("weight: 1", "weight: 1.0"))
    moved = replace(
        linear(), sources=tuple(replace(s, folder=s.folder / "moved") for s in linear().sources)
    )
    noted = replace(linear(), notes=("a note",))
    for other in (same, moved, noted):
        assert fingerprint(fingerprint_parts(other)) == fingerprint(before)
        assert changes(before, fingerprint_parts(other)) == []
    assert len(fingerprint(before)) == 64


def test_the_code_of_the_method_decides_and_the_order_of_the_facts_does_not() -> None:
    parts = fingerprint_parts(linear())
    assert parts["method"] == METHODS.identity("linear")
    assert fingerprint(dict(reversed(parts.items()))) == fingerprint(parts)


def test_changes_are_named() -> None:
    before = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": [1], "same": float("nan")}
    after = {
        "a": 2,
        "b": {"c": [1, 3], "d": "x"},
        "e": [1, 2],
        "f": "y" * 200,
        "same": float("nan"),
    }
    assert changes(before, after) == [
        "a: 1 -> 2",
        "b.c[1]: 2 -> 3",
        'b.d: null -> "x"',
        "e: [1] -> [1, 2]",
        f'f: null -> "{"y" * 116}...',
    ]
    assert changes(before, before) == []
    assert changes({}, {"a": "z" * 118}) == [f'a: null -> "{"z" * 118}"']
    assert changes({}, {"a": "z" * 119}) == [f'a: null -> "{"z" * 116}...']


def test_what_is_read_of_each_file() -> None:
    found = linear()
    assert estimate(found).read_of(0) == {
        "m.safetensors": sum(t.nbytes for t in llama("a").tensors.values())
    }
    first = found.units[0].expression
    assert found.files_of(first, "local") == {(0, "m.safetensors"), (1, "m.safetensors")}
    assert found.files_of(first, "hub") == frozenset()
    assert found.output_bytes == sum(shard.nbytes for shard in found.shards)
    twice = plan("merge_method: passthrough\nslices:\n" + 2 * (
        "  - sources: [{model: a, layer_range: [0, 3]}]\n"), llama("a"))  # fmt: skip
    assert estimate(twice).read_of(0) == estimate(found).read_of(0), "each byte once"
