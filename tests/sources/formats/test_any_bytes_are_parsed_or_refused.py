"""Promise: the header of any file is read, or `InputError` says what is wrong with the file."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from malicious_files import DATA, file_of, tensor
from safetensors import SafetensorError, deserialize
from safetensors.torch import save

from resumerge.errors import InputError
from resumerge.sources.formats.safetensors import Safetensors
from resumerge.sources.formats.weight_format import Header
from resumerge.sources.index import parse_index
from resumerge.tensors import Stored


def read(file: bytes) -> Header:
    return Safetensors().read_header(
        lambda begin, end: file[begin:end], size=len(file), file="file", where="file"
    )


def parse(file: bytes) -> dict[str, Stored]:
    return read(file).tensors


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
COUNT = st.integers(-2, 20) | st.sampled_from([2**31, 2**63, 2**64]) | JSON
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "BOOL", "F99"]) | JSON,
        "shape": st.lists(COUNT, max_size=3) | JSON,
        "data_offsets": st.lists(COUNT, min_size=2, max_size=2) | JSON,
    }
)
HEADER = st.dictionaries(st.text(max_size=3), ENTRY | JSON, max_size=3)


@given(st.binary(max_size=200))
def test_bytes(file: bytes) -> None:
    with suppress(InputError):
        parse(file)


@given(st.binary(max_size=100), st.binary(max_size=20))
def test_bytes_where_the_header_should_be(header: bytes, data: bytes) -> None:
    with suppress(InputError):
        parse(file_of(header, data))


@given(HEADER, st.integers(0, 60))
def test_json_that_is_nearly_a_header(header: dict[str, Any], data: int) -> None:
    with suppress(InputError):
        parse(file_of(header, bytes(data)))


def numbers() -> Iterator[Any]:
    """Yield values to put in place of a number in a header of two tensors."""
    yield from (-1, 0, 1, 4, 8, 12, 16, 2**40, 2**63, 2**64, 1.0, None, "8", [8])


PLACES = [(name, key, i) for name in "ab" for key in ("shape", "data_offsets") for i in (0, 1)]


@pytest.mark.parametrize("place", PLACES, ids=lambda p: "-".join(map(str, p)))
def test_what_is_accepted_is_accepted_by_the_reference_implementation_too(
    place: tuple[str, str, int],
) -> None:
    name, key, i = place
    for number in numbers():
        header = {"a": tensor("F32", [1, 2], [0, 8]), "b": tensor("BF16", [2, 2], [8, 16])}
        header[name][key][i] = number
        file = file_of(header, DATA * 2)
        try:
            ours: set[str] | None = set(parse(file))
        except InputError:
            ours = None
        try:
            reference: set[str] | None = {name for name, _ in deserialize(file)}
        except SafetensorError:
            reference = None
        assert ours == reference, number


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn]
DTYPES += [torch.float8_e5m2, torch.int64, torch.uint8, torch.bool]


@given(
    st.dictionaries(
        st.text(max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from(DTYPES),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=5,
    )
)
def test_what_the_reference_implementation_writes_is_read(
    tensors: dict[str, tuple[torch.dtype, tuple[int, ...]]],
) -> None:
    file = save({name: torch.zeros(shape, dtype=dtype) for name, (dtype, shape) in tensors.items()})
    found = parse(file)
    assert {name: info.shape for name, info in found.items()} == {
        name: tuple(shape) for name, (_, shape) in tensors.items()
    }
    for name, data in deserialize(file):
        info = found[name]
        assert info.dtype == data["dtype"]
        assert file[info.offset : info.offset + info.nbytes] == bytes(data["data"])


@given(st.binary(max_size=100) | JSON.map(lambda data: json.dumps(data).encode()))
def test_any_bytes_as_index(raw: bytes) -> None:
    with suppress(InputError):
        parse_index(raw, "index")


@given(st.dictionaries(st.text(), st.text()))
def test_no_index_leads_out_of_the_folder(weight_map: dict[str, str]) -> None:
    raw = json.dumps({"weight_map": weight_map}).encode()
    with suppress(InputError):
        for file in parse_index(raw, "index").values():
            assert not file.startswith("/")
            assert ".." not in file.split("/")
