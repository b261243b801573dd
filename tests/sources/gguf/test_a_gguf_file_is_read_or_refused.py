"""Promise: any bytes of a GGUF file are read, or cause an error that says what is wrong with it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from gguf_models import FAMILIES, HIDDEN, write_gguf

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source
from resumerge.sources.types import Source

LLAMA = FAMILIES["llama"]
Entry = tuple[str, list[int], int, int]

TYPES: dict[type, tuple[int, str]] = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(found: Any) -> bytes:
    if isinstance(found, bytes):
        return found  # as it is: type and all
    if isinstance(found, str):
        return struct.pack("<I", 8) + text(found)
    kind, form = TYPES[type(found)]
    return struct.pack(f"<I{form}", kind, found)


class Made:
    """The parts of a small file with few tensors, which are changed before it is written."""

    def __init__(self) -> None:
        self.magic, self.version = b"GGUF", 3
        self.values: list[tuple[str | bytes, Any]] = [
            ("general.architecture", "llama"),
            ("llama.embedding_length", 64),
            ("llama.block_count", 1),
            ("llama.context_length", 128),
            ("llama.feed_forward_length", 96),
            ("llama.attention.head_count", 2),
            ("llama.attention.layer_norm_rms_epsilon", 1e-5),
        ]
        self.tensors: list[Entry] = []
        self.counts: tuple[int, int] | None = None
        self.data = b""
        self.add("token_embd.weight", [64, 32], 8, 2048 // 32 * 34)
        self.add("output_norm.weight", [64], 0, 256)
        self.add("blk.0.attn_q.weight", [64, 64], 1, 8192)

    def add(self, name: str, dims: list[int], kind: int, nbytes: int) -> None:
        self.tensors.append((name, dims, kind, len(self.data)))
        self.data += bytes(-(-nbytes // 32) * 32)

    def put(self, key: str, found: Any) -> None:
        kept = [pair for pair in self.values if pair[0] != key]
        self.values = kept if found is None else [*kept, (key, found)]

    def tensor(self, number: int, **changed: Any) -> None:
        fields = dict(zip(("name", "dims", "kind", "offset"), self.tensors[number], strict=True))
        self.tensors[number] = tuple((fields | changed).values())  # type: ignore[assignment]

    def written(self) -> bytes:
        tensors, values = self.counts or (len(self.tensors), len(self.values))
        head = self.magic + struct.pack("<IQQ", self.version, tensors, values)
        head += b"".join(text(key) + value(found) for key, found in self.values)
        for name, dims, kind, offset in self.tensors:
            head += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
            head += struct.pack("<IQ", kind, offset)
        return head + bytes(-len(head) % 32) + self.data


def opened(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return open_source(read_reference(str(path)))


def test_the_file_that_is_changed_is_sound(tmp_path: Path) -> None:
    source = opened(tmp_path / "model.gguf", Made().written())
    assert sorted(source.tensors) == [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.norm.weight",
    ]


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return struct.pack("<IIQ", 9, kind, count) + data


Change = Callable[[Made], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "another magic": (lambda m: setattr(m, "magic", b"GGML"), "begins with GGUF"),
    "an old version": (lambda m: setattr(m, "version", 1), "version 1"),
    "the other byte order": (lambda m: setattr(m, "version", 3 << 24), "big-endian"),
    "too many tensors": (lambda m: setattr(m, "counts", (1 << 60, 7)), "at most"),
    "too many values": (lambda m: setattr(m, "counts", (3, 1 << 60)), "at most"),
    "more tensors than there are": (lambda m: setattr(m, "counts", (50, 7)), "tensor|name|bytes"),
    "a key twice": (lambda m: m.values.append(m.values[1]), "twice"),
    "a key that is no text": (lambda m: m.values.append((b"\xff\xfe", 1)), "UTF-8"),
    "an endless text": (
        lambda m: m.put("x", struct.pack("<IQ", 8, 1 << 62)),
        "at most",
    ),
    "a text past the end": (lambda m: m.put("x", struct.pack("<IQ", 8, 1 << 21)), "header"),
    "an unknown type of value": (lambda m: m.put("x", struct.pack("<I", 13)), "type 13"),
    "a bool of 2": (lambda m: m.put("x", struct.pack("<IB", 7, 2)), "0 or 1"),
    "an endless array": (lambda m: m.put("x", array(8, 1 << 62)), "at most"),
    "an array past the end": (lambda m: m.put("x", array(10, 3_000_000)), "header"),
    "an array of texts past the end": (lambda m: m.put("x", array(8, 100_000)), "header|at most"),
    "arrays in arrays": (lambda m: m.put("x", array(9, 1, array(4, 0)[4:])), "an array of"),
    "alignment 0": (lambda m: m.put("general.alignment", 0), "power of two"),
    "alignment 48": (lambda m: m.put("general.alignment", 48), "power of two"),
    "alignment that is a text": (lambda m: m.put("general.alignment", "32"), "power of two"),
    "five dimensions": (lambda m: m.tensor(0, dims=[64, 32, 1, 1, 1]), "4 dimensions"),
    "more elements than atoms": (lambda m: m.tensor(0, dims=[1 << 40, 1 << 40]), "elements"),
    "an unknown type": (lambda m: m.tensor(0, kind=4), "type 4"),
    "a type that is not read": (lambda m: m.tensor(0, kind=16), "IQ2_XXS"),
    "rows that cut blocks": (lambda m: m.tensor(0, dims=[48, 32]), "whole blocks"),
    "a scalar of blocks": (lambda m: m.tensor(0, dims=[]), "whole blocks"),
    "data past the end": (lambda m: m.tensor(2, dims=[64, 640]), "truncated"),
    "overlapping data": (lambda m: m.tensor(1, offset=0), "overlap"),
    "an offset past everything": (lambda m: m.tensor(2, offset=1 << 62), "hole"),
    "an offset that is not aligned": (lambda m: m.tensor(1, offset=2177), "hole"),
    "data behind the tensors": (lambda m: setattr(m, "data", m.data + b"x" * 64), "bytes in the"),
    "missing data": (lambda m: setattr(m, "data", m.data[:-64]), "truncated"),
    "a tensor twice": (lambda m: m.tensor(1, name="token_embd.weight"), "twice"),
    "no architecture": (lambda m: m.put("general.architecture", None), "not read"),
    "an unknown architecture": (lambda m: m.put("general.architecture", "mamba"), "mamba"),
    "an architecture that is a number": (lambda m: m.put("general.architecture", 3), "a text"),
    "an adapter": (lambda m: m.put("general.type", "adapter"), "adapter"),
    "no width": (lambda m: m.put("llama.embedding_length", None), "embedding_length"),
    "a width of 0": (lambda m: m.put("llama.embedding_length", 0), "embedding_length"),
    "another width": (lambda m: m.put("llama.embedding_length", 65), "65 columns"),
    "heads that do not divide": (lambda m: m.put("llama.attention.head_count", 3), "3 heads"),
    "heads for each layer": (
        lambda m: m.put("llama.attention.head_count", array(4, 1, struct.pack("<I", 2))),
        "head_count",
    ),
    "no number": (
        lambda m: m.put("llama.attention.layer_norm_rms_epsilon", float("nan")),
        "a number above 0",
    ),
    "a billion layers": (lambda m: m.put("llama.block_count", 1 << 30), "layers with the same"),
    "a layer too many": (lambda m: m.tensor(2, name="blk.1.attn_q.weight"), "no such tensor"),
    "an unknown tensor": (lambda m: m.tensor(2, name="blk.0.ssm_a.weight"), "no such tensor"),
    "a layer with leading zeros": (
        lambda m: m.tensor(2, name="blk.00.attn_q.weight"),
        "no such tensor",
    ),
    "whole numbers for weights": (lambda m: m.tensor(2, kind=25), "floats"),
    "no embeddings": (lambda m: m.tensor(0, name="output.weight"), "64 columns"),
    "factors that are no factors": (
        lambda m: m.add("rope_freqs.weight", [16], 0, 64),
        "numbers above 0",
    ),
    "one of several files": (lambda m: m.put("split.count", 3), "missing"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_cannot_be_right_is_refused(what: str, tmp_path: Path) -> None:
    change, said = CHANGES[what]
    made = Made()
    change(made)
    with pytest.raises(InputError, match=f"(?s)model.gguf.*({said})|({said}).*model.gguf"):
        opened(tmp_path / "model.gguf", made.written())


def test_any_other_bytes_are_read_or_refused(tmp_path: Path) -> None:
    """Changed bytes, also of lengths and types, cause no exception but `InputError`."""
    sound, path = Made().written(), tmp_path / "model.gguf"
    header = len(sound) - len(Made().data)
    draw, refused = Random(1), 0
    for _ in range(1500):
        data = bytearray(sound)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(min(header, len(data)))
            data[at] = draw.choice((0, 1, 255, 128, draw.randrange(256)))
        if draw.random() < 0.2:
            data = data[: draw.randrange(len(data))]
        try:
            opened(path, bytes(data))
        except InputError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize("cut", [0, 3, 20, 24, 30, 200, 3000])
def test_a_file_that_was_cut_is_refused(cut: int, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        opened(tmp_path / "model.gguf", Made().written()[:cut])


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, LLAMA, LLAMA.tensors(1), "Q4_K")
    monkeypatch.setattr("resumerge.quantisation.gguf_blocks.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"(?s)Q4_K.*pip install 'resumerge\[gguf\]'"):
        open_source(read_reference(str(path)))
    write_gguf(path, LLAMA, LLAMA.tensors(1), "Q5_1")
    assert open_source(read_reference(str(path))).tensors["model.embed_tokens.weight"].shape[1] == (
        HIDDEN
    )
