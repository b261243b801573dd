"""Safetensors files that lie about themselves. Each is made small, here, byte by byte."""

from __future__ import annotations

import json
from typing import Any


def file_of(header: bytes | dict[str, Any], data: bytes = b"") -> bytes:
    """Return a file with a header, as JSON or as bytes, after the header's length."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    """Return one entry of a header; by default a valid one, of two float32."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


DATA = bytes(8)
VALID = file_of({"a": tensor()}, DATA)

MALICIOUS: dict[str, bytes] = {
    "empty": b"",
    "shorter_than_its_length_field": b"\x10\0\0",
    "header_length_of_all_ones": b"\xff" * 8 + VALID[8:],
    "header_length_beyond_the_limit": (100_000_001).to_bytes(8, "little") + VALID[8:],
    "header_length_beyond_the_file": len(VALID).to_bytes(8, "little") + VALID[8:],
    "header_cut": file_of(b'{"a": {"dtype": "F3'),
    "header_empty": file_of(b""),
    "header_a_list": file_of(b"[]"),
    "header_a_number": file_of(b"1"),
    "header_not_utf8": file_of(b'{"\xff\xfe": {}}'),
    "header_half_a_surrogate": file_of(
        b'{"\\ud800": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', DATA
    ),
    "header_utf16": file_of(json.dumps({"a": tensor()}).encode("utf-16"), DATA),
    "header_nested_deep": file_of(b'{"a": ' * 100_000),
    "header_number_of_5000_digits": file_of(
        b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 8]}}', DATA
    ),
    "name_twice": file_of(
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},'
        b' "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
        DATA,
    ),
    "entry_a_string": file_of({"a": "F32"}, DATA),
    "entry_without_shape": file_of({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, DATA),
    "entry_with_key_twice": file_of(
        b'{"a": {"dtype": "F32", "shape": [2], "shape": [2], "data_offsets": [0, 8]}}', DATA
    ),
    "dtype_unknown": file_of({"a": tensor(dtype="F33")}, DATA),
    "dtype_a_list": file_of({"a": tensor(dtype=["F32"])}, DATA),
    "dtype_of_another_size": file_of({"a": tensor(dtype="F64")}, DATA),
    "shape_a_number": file_of({"a": tensor(shape=2)}, DATA),
    "shape_negative": file_of({"a": tensor(shape=[-2])}, DATA),
    "shape_twice_negative": file_of({"a": tensor(shape=[-1, -2])}, DATA),
    "shape_fractional": file_of({"a": tensor(shape=[2.0])}, DATA),
    "shape_true": file_of({"a": tensor(shape=[True, 2])}, DATA),
    "shape_too_small": file_of({"a": tensor(shape=[1])}, DATA),
    "shape_too_large": file_of({"a": tensor(shape=[3])}, DATA),
    "shape_that_overflows_64_bits": file_of({"a": tensor(shape=[2**63, 2, 2])}, DATA),
    "offsets_three": file_of({"a": tensor(offsets=[0, 4, 8])}, DATA),
    "offsets_text": file_of({"a": tensor(offsets="08")}, DATA),
    "offsets_negative": file_of({"a": tensor(offsets=[-8, 0])}, DATA),
    "offsets_backwards": file_of({"a": tensor(offsets=[8, 0])}, DATA),
    "offsets_beyond_the_file": file_of({"a": tensor(offsets=[0, 16], shape=[4])}, DATA),
    "offsets_beyond_64_bits": file_of({"a": tensor(offsets=[2**64, 2**64 + 8])}, DATA),
    "truncated_by_a_byte": VALID[:-1],
    "a_byte_too_much": VALID + b"\0",
    "hole_at_the_start": file_of({"a": tensor(offsets=[8, 16])}, DATA * 2),
    "hole_between": file_of({"a": tensor(), "b": tensor(offsets=[16, 24])}, DATA * 3),
    "overlapping": file_of({"a": tensor(), "b": tensor(offsets=[4, 12])}, DATA + DATA[:4]),
    "overlapping_and_a_hole_of_that_size": file_of({"a": tensor(), "b": tensor()}, DATA * 2),
    "the_same_bytes_twice": file_of({"a": tensor(), "b": tensor()}, DATA),
    "a_pickle": b"\x80\x02}q\x00." + bytes(64),
    "a_zip": b"PK\x03\x04" + bytes(64),
    "a_git_lfs_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 8\n",
}
