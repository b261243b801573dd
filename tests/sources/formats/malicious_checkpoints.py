"""Torch checkpoints that lie, or that would run something. Each is made small, here."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import zipfile
from typing import Any

import torch

from resumerge.sources.formats.torch_checkpoint import LEGACY_MAGIC

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)}


def archive(data: bytes, files: dict[str, bytes] | None = None, compress: int = 0) -> bytes:
    """Return a checkpoint with this pickle, and storages by name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compress) as made:
        made.writestr("archive/data.pkl", data)
        for name, content in (files or {}).items():
            made.writestr(f"archive/{name}", content)
    return out.getvalue()


def saved(value: Any, zipped: bool = True) -> bytes:
    """Return the bytes that torch.save writes."""
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


class Calls:
    """An object whose pickle is a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> Any:
        return self._call


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=2)


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def number(value: int) -> bytes:
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def tensor(
    shape: bytes = number(2) + b"\x85",
    strides: bytes = number(1) + b"\x85",
    offset: bytes = number(0),
    size: bytes = number(2),
    kind: str = "torch\nFloatStorage",
    call: str = "torch._utils\n_rebuild_tensor_v2",
    key: str = "0",
    name: bytes = text("a"),
) -> bytes:
    """Return the pickle of a dictionary of one tensor; by default a valid one, of two float32."""
    storage = b"(" + text("storage") + b"c" + kind.encode() + b"\n"
    storage += text(key) + text("cpu") + size + b"tQ"
    arguments = b"(" + storage + offset + shape + strides + b"\x89" + b"}" + b"t"
    return b"\x80\x02}" + name + b"c" + call.encode() + b"\n" + arguments + b"Rs."


def legacy(protocol: bytes = b"M\xe9\x03", keys: bytes = b"]", little_endian: bool = True) -> bytes:
    """Return a checkpoint of the older format without a tensor; by default a valid one."""
    machine = pickled({"little_endian": little_endian})
    values = (b"\x80\x02" + protocol + b".", machine, b"\x80\x02}.", b"\x80\x02" + keys + b".")
    return LEGACY_MAGIC + b"".join(values)


def two_pickles() -> bytes:
    """Return an archive with two checkpoints."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("one/data.pkl", tensor())
        made.writestr("two/data.pkl", tensor())
    return out.getvalue()


def with_an_encrypted_storage() -> bytes:
    """Return a checkpoint whose last file, a storage, is flagged as encrypted in the directory."""
    made = bytearray(VALID)
    made[made.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(made)


DATA = {"data/0": bytes(8)}
VALID = archive(tensor(), DATA)
NESTED = b")" + b"\x85" * 20_000
DOUBLED = b")" + b"q\x00h\x00\x86" * 60
"""Tuples that no text can be made of: too deep for it, or of 2^60 letters."""

DEEP = b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."
BOMB = b"\x80\x02)q\x00" + b"".join(b"h\x00h\x00\x86q\x00" for _ in range(60)) + b"}h\x00K\x01s."

RUNNING: dict[str, tuple[bytes, str]] = {
    "os_system": (archive(pickled({"a": Calls(os.system, "touch run")})), "system"),
    "eval": (archive(pickled({"a": Calls(eval, "open('run', 'w')")})), "eval"),
    "subprocess": (archive(pickled({"a": Calls(subprocess.Popen, "touch run")})), "Popen"),
    "getattr": (archive(pickled({"a": Calls(getattr, "", "join")})), "getattr"),
    "torch_hub": (archive(pickled({"a": Calls(torch.hub.load, "a/b")})), "torch.hub.load"),
    "legacy": (saved({"a": Calls(os.system, "touch run")}, zipped=False), "system"),
    "a_whole_module": (saved(torch.nn.Linear(2, 2)), "torch.nn.modules.linear.Linear"),
    "stack_global": (
        archive(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x03run\x85R."),
        "os.system",
    ),
    "inst": (archive(b"(ios\nsystem\n."), "INST"),
    "obj": (archive(b"\x80\x02(cos\nsystem\nX\x03\0\0\0runo."), "os.system"),
    "newobj": (archive(b"\x80\x02ccollections\nOrderedDict\n)\x81."), "NEWOBJ"),
    "extension_registry": (archive(b"\x80\x02\x82\x01."), "EXT1"),
    "state_of_a_tensor": (
        archive(tensor()[:-2] + b"}" + text("data") + b"K\x01sbs.", DATA),
        "attributes",
    ),
    "storage_class": (archive(tensor(kind="os\nsystem"), DATA), "os.system"),
    "rebuild_function": (archive(tensor(call="torch._utils\n_rebuild_qtensor"), DATA), "qtensor"),
    "persistent_id": (archive(b"\x80\x02U\x03abcQ."), ""),
    "view_of_a_storage": (
        archive(tensor(size=number(2) + text("0") + number(0) + number(2)), DATA),
        "a view of another storage",
    ),
    "view_of_a_storage_at_0": (
        archive(tensor(size=number(2) + number(0)), DATA),
        "a view of another storage",
    ),
    "tuple_as_key": (archive(BOMB), "a key of type tuple"),
    **{
        f"persistent_id_{name}": (
            archive(b"\x80\x02(" + text("storage") + value + text("0") + text("cpu") + b"K\x04tQ."),
            "a reference to a tuple",
        )
        for name, value in (("nested", NESTED), ("doubled", DOUBLED))
    },
}
"""Checkpoints that ask for more than tensors, and what the message names."""

LYING: dict[str, bytes] = {
    "empty": b"",
    "text": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 8\n",
    "safetensors": (2).to_bytes(8, "little") + b"{}",
    "a_bare_pickle": pickled({"a": 1}),
    "not_a_zip": b"PK\x03\x04" + bytes(64),
    "no_pickle_in_it": archive(b"")[:0] + saved({})[:60],
    "truncated": VALID[:-30],
    "without_its_middle": VALID[:40] + VALID[90:],
    "empty_pickle": archive(b""),
    "cut_pickle": archive(tensor()[:30], DATA),
    "a_list": archive(b"\x80\x02]."),
    "a_key_without_a_value": archive(b"\x80\x02}(" + text("a") + b"u."),
    "a_last_key_without_a_value": archive(
        tensor()[:-2].replace(b"}" + text("a"), b"}(" + text("a"), 1) + text("b") + b"u.", DATA
    ),
    "items_of_a_list": archive(b"\x80\x02](" + text("a") + text("b") + b"u."),
    "appended_to_a_dictionary": archive(b"\x80\x02}K\x01a."),
    "a_number": archive(b"\x80\x02K\x01."),
    "stack_underflow": archive(b"\x80\x02t."),
    "no_such_memo": archive(b"\x80\x02h\x07."),
    "deep": archive(DEEP),
    "a_number_as_tensor": archive(b"\x80\x02}" + text("a") + b"K\x01s."),
    "a_number_as_name": archive(tensor(name=b"K\x01"), DATA),
    "half_a_surrogate": archive(tensor(name=b"X\x03\0\0\0\xed\xa0\x80"), DATA),
    "missing_storage": archive(tensor(), {}),
    "storage_outside": archive(tensor(key="../../data.pkl"), DATA),
    "short_storage": archive(tensor(), {"data/0": bytes(7)}),
    "shape_too_large": archive(tensor(shape=number(3) + b"\x85"), DATA),
    "shape_negative": archive(tensor(shape=number(-2) + b"\x85"), DATA),
    "shape_true": archive(tensor(shape=b"\x88\x85"), DATA),
    "shape_a_list": archive(tensor(shape=b"]"), DATA),
    "shape_beyond_64_bits": archive(
        tensor(shape=number(2**63) + b"\x85", strides=number(0) + b"\x85"), DATA
    ),
    "shape_whose_product_is": archive(
        tensor(shape=number(2**40) * 2 + b"\x86", strides=number(0) * 2 + b"\x86"), DATA
    ),
    "stride_negative": archive(tensor(strides=number(-1) + b"\x85"), DATA),
    "stride_too_large": archive(tensor(strides=number(2) + b"\x85"), DATA),
    "strides_missing": archive(tensor(strides=b")"), DATA),
    "offset_too_large": archive(tensor(offset=number(1)), DATA),
    "offset_negative": archive(tensor(offset=number(-1)), DATA),
    "offset_text": archive(tensor(offset=text("0")), DATA),
    "untyped_storage": archive(tensor(kind="torch.storage\nUntypedStorage"), DATA),
    "compressed": archive(tensor(), DATA, zipfile.ZIP_DEFLATED),
    "big_endian": archive(tensor(), {**DATA, "byteorder": b"big"}),
    "encrypted": with_an_encrypted_storage(),
    "two_pickles": two_pickles(),
    **{
        f"{place}_{name}": make(value)
        for name, value in (("nested", NESTED), ("doubled", DOUBLED))
        for place, make in (
            ("module", lambda value: archive(b"\x80\x04" + value + text("x") + b"\x93.")),
            ("name", lambda value: archive(b"\x80\x04" + text("x") + value + b"\x93.")),
            ("legacy_protocol", lambda value: legacy(protocol=value)),
            ("legacy_key", lambda value: legacy(keys=b"](" + value + b"e")),
        )
    },
    "legacy_big_endian": legacy(little_endian=False),
    "legacy_of_another_protocol": legacy(protocol=b"M\xe8\x03"),
    "legacy_cut": saved(TENSORS, zipped=False)[:-9],
    "legacy_cut_in_a_pickle": saved(TENSORS, zipped=False)[:200],
    "legacy_cut_after_the_magic": saved(TENSORS, zipped=False)[:15],
}
"""Checkpoints that are damaged, or whose statements about themselves are false."""
