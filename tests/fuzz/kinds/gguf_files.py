"""Models in GGUF with changed headers or blocks."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

from fuzz import tiny_files
from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.kinds.base import MERGE, Commands, Kind, continues
from fuzz.runs import HALF, make_unfinished

Value = tuple[str, int, Any]
"""The name of a value, the number of its type, and the value itself."""

Described = tuple[str, list[int], int, int]
"""A tensor's name, dimensions (the innermost first), type and offset."""

WIDTH = 32
_U32, _F32, _TEXT, _ARRAY = 4, 6, 8, 9
_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_F32_TYPE, _F16_TYPE, _Q4_0, _Q8_0 = 0, 1, 2, 8
_BLOCK_BYTES = {_Q4_0: 18, _Q8_0: 34}
_HUGE = (0, 1, 3, 33, 255, 2**16, 2**31, 2**32 - 1, 2**48, 2**61, 2**63 - 1, 2**63, 2**64 - 1)
_TYPES = (*range(42), 99, 2**31, 2**32 - 1)
_NAN = b"\x00\x7e"

_VALUES: tuple[Value, ...] = (
    ("general.architecture", _TEXT, "llama"),
    ("general.alignment", _U32, 32),
    ("llama.block_count", _U32, 1),
    ("llama.context_length", _U32, 64),
    ("llama.embedding_length", _U32, WIDTH),
    ("llama.feed_forward_length", _U32, WIDTH),
    ("llama.attention.head_count", _U32, 2),
    ("llama.attention.head_count_kv", _U32, 2),
    ("llama.rope.freq_base", _F32, 10000.0),
    ("llama.attention.layer_norm_rms_epsilon", _F32, 1e-5),
    ("llama.vocab_size", _U32, 8),
    ("tokenizer.ggml.model", _TEXT, "gpt2"),
    ("tokenizer.ggml.tokens", _ARRAY, (_TEXT, [str(n) for n in range(8)])),
    ("tokenizer.ggml.token_type", _ARRAY, (5, [1] * 8)),
)
_TENSORS = {
    "token_embd.weight": ([WIDTH, 8], _Q8_0),
    "output_norm.weight": ([WIDTH], _F32_TYPE),
    "output.weight": ([WIDTH, 8], _F16_TYPE),
    "blk.0.attn_norm.weight": ([WIDTH], _F32_TYPE),
    "blk.0.ffn_norm.weight": ([WIDTH], _F32_TYPE),
    **{f"blk.0.attn_{n}.weight": ([WIDTH, WIDTH], _Q8_0) for n in ("q", "k", "v", "output")},
    **{f"blk.0.ffn_{n}.weight": ([WIDTH, WIDTH], _Q4_0) for n in ("gate", "up", "down")},
}
_RECIPE = (
    "merge_method: linear\nparameters: {weight: 0.5}\nmodels:\n"
    "- {model: ./a/model.gguf}\n- {model: ./b/model.gguf}\n"
)


class GgufFiles(Kind):
    """Two models in GGUF, one of which is changed, and an unfinished run."""

    def make(self, work: Path) -> None:
        for name in ("a", "b"):
            tiny_files.write(work / name, {"model.gguf": _file(_VALUES, _described())})
        (work / "recipe.yaml").write_text(_RECIPE)
        make_unfinished("recipe.yaml")

    def change(self, draw: Random, work: Path) -> Path:
        path = work / "a" / "model.gguf"
        put_something(draw, path, lambda: _changed(draw, path.read_bytes()))
        return path

    def commands(self, draw: Random) -> Commands:
        if draw.random() < 0.2:
            return continues(draw, HALF)
        out = draw.choice(("out", "out", "out.gguf"))
        plan, run = ["plan", "recipe.yaml", out, "--offline"], ["run", "recipe.yaml", out, *MERGE]
        return draw.choice(([plan], [run], [plan, run], [run, ["verify", out]]))


def _nbytes(dimensions: list[int], kind: int) -> int:
    count = 1
    for length in dimensions:
        count *= length
    if kind in _BLOCK_BYTES:
        return count // 32 * _BLOCK_BYTES[kind]
    return count * (4 if kind == _F32_TYPE else 2)


def _described() -> list[Described]:
    found, offset = list[Described](), 0
    for name, (dimensions, kind) in _TENSORS.items():
        found.append((name, [*dimensions], kind, offset))
        offset += -(-_nbytes(dimensions, kind) // 32) * 32
    return found


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    if kind == _TEXT:
        return _text(str(value))
    if kind == _ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(_value(inner, i) for i in items)
    if kind not in _FORMS:
        return struct.pack("<I", 0)
    return struct.pack(f"<{_FORMS[kind]}", value)


def _header(values: Any, tensors: list[Described], counts: tuple[int, int]) -> bytes:
    described = b"".join(
        _text(name)
        + struct.pack("<I", len(dimensions))
        + b"".join(struct.pack("<Q", length) for length in dimensions)
        + struct.pack("<IQ", kind, offset)
        for name, dimensions, kind, offset in tensors
    )
    told = b"".join(
        _text(name) + struct.pack("<I", kind) + _value(kind, value) for name, kind, value in values
    )
    return b"GGUF" + struct.pack("<IQQ", 3, *counts) + told + described


def _file(values: Any, tensors: list[Described], counts: tuple[int, int] | None = None) -> bytes:
    header = _header(values, tensors, counts or (len(tensors), len(values)))
    size = max(offset + _nbytes(*_TENSORS[name]) for name, _, _, offset in _described())
    return header + bytes(-len(header) % 32) + bytes(size)


def _changed(draw: Random, data: bytes) -> bytes:
    """Return a file with other descriptions of tensors, other values or other numbers."""
    values, tensors = [*_VALUES], _described()
    counts = len(tensors), len(values)
    match draw.randrange(10):
        case 0:
            return changed_bytes(draw, data)
        case 1:
            counts = draw.choice(((draw.choice(_HUGE), counts[1]), (counts[0], draw.choice(_HUGE))))
        case 2 | 3 | 4:
            for _ in range(draw.choice((1, 1, 2))):
                place = draw.randrange(len(tensors))
                tensors[place] = _other_tensor(draw, tensors, tensors[place])
        case 5 | 6:
            place = draw.randrange(len(values))
            values[place] = _other_value(draw, values[place])
            counts = len(tensors), len(values)
        case 7:
            values += [("general.name", _TEXT, "x" * draw.choice((1, 5 << 20)))] * draw.choice(
                (1, 2)
            )
            values += [(f"x.{n}", _U32, n) for n in range(draw.choice((0, 70_000)))]
            counts = len(tensors), len(values)
        case 8:
            begin = len(data) - draw.randrange(1, len(data) // 2)
            return data[:begin] + _NAN * ((len(data) - begin) // 2)
        case 9:
            begin = len(_header(_VALUES, tensors, counts))
            return data[:begin] + draw.randbytes(len(data) - begin)
    return _file(values, tensors, counts)


def _other_tensor(draw: Random, tensors: list[Described], tensor: Described) -> Described:
    name, dimensions, kind, offset = tensor
    match draw.randrange(5):
        case 0:
            name = draw.choice((draw.choice(tensors)[0], "blk.9999999999.x.weight", "x" * 2000, ""))
        case 1:
            dimensions = [*dimensions]
            dimensions[draw.randrange(len(dimensions))] = draw.choice(_HUGE)
        case 2:
            dimensions = [draw.choice((1, 8, 32, 33))] * draw.choice((0, 1, 3, 4, 5, 200))
        case 3:
            kind = draw.choice(_TYPES)
        case 4:
            offset = draw.choice((*_HUGE, 32, 64, 96))
    return name, dimensions, kind, offset


def _other_value(draw: Random, value: Value) -> Value:
    name, kind, content = value
    match draw.randrange(4):
        case 0:
            return draw.choice(("llama.rope.scaling.type", "general.architecture")), _TEXT, "x"
        case 1 if kind == _U32:
            return name, kind, draw.choice((0, 1, 3, 33, 2**31, 2**32 - 1))
        case 2:
            return name, _F32, draw.choice((0.0, -1.0, float("nan"), float("inf")))
        case 3:
            depth: Any = (_U32, [1])
            for _ in range(draw.choice((1, 3, 2000)) if draw.random() < 0.3 else 0):
                depth = (_ARRAY, [depth])
            return name, _ARRAY, depth
    return name, draw.choice((_TEXT, 13, 255)), content
