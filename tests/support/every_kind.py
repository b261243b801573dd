"""A small example of every kind of tensor, with its numbers according to its definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.engine.evaluation.kernel_backend import KernelBackend
from resumerge.kernels.draws import normals, uniforms
from resumerge.kernels.quantised import Code
from resumerge.tensors import (
    Adapted,
    Dequantised,
    Encoded,
    Gathered,
    Halved,
    Interleaved,
    Merged,
    PackedBlocks,
    Quantised,
    Repacked,
    Rounded,
    Sliced,
    Spilled,
    Stacked,
    Stored,
    Tensor,
    Tiled,
    Transposed,
)
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation, HeldValues
from resumerge.tensors.generated import Drawn, Filled, Literal
from resumerge.tensors.quantised.codes import Codebook
from resumerge.tensors.quantised.form import Form
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO, Rows

OFFSET = 64
"""The offset of every leaf in its file."""

Elements = set[tuple[str, int]]
"""Elements of leaves: a leaf's name and a number."""

_DTYPES = {"float32": "F32", "float64": "F64", "int8": "I8", "uint8": "U8", "int32": "I32"}


class NotedFiles:
    """Files in memory, one for each leaf, which record the elements that are read.

    Args:
        arrays: the elements of each leaf, by its name; uint16 for those of BF16.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._data = {name: bytes(OFFSET) + array.tobytes() for name, array in arrays.items()}
        self.read: Elements = set()

    def descriptor(self, tensor: Any) -> None:
        return None

    def fill(self, tensor: Any, offset: int, buffer: memoryview) -> None:
        assert offset >= OFFSET, "the header is no element"
        width = BITS[tensor.dtype] // 8
        first = (offset - OFFSET) // width
        self.read |= {(tensor.name, first + k) for k in range(len(buffer) // width)}
        buffer[:] = self._data[tensor.name][offset : offset + len(buffer)]


@dataclass(frozen=True)
class Example:
    """A tensor, with the elements of its leaves and its own.

    Args:
        tensor: the tensor.
        arrays: the elements of its leaves.
        expected: its elements.
        ledger: its description in the ledger.
    """

    tensor: Tensor
    arrays: Mapping[str, np.ndarray]
    expected: np.ndarray
    ledger: Mapping[str, Any]

    def means(self, limit: int = 0) -> tuple[Evaluation, NotedFiles]:
        """Return an evaluation with kernels, which holds `limit` bytes, and the files for it."""
        files = NotedFiles(self.arrays)
        with_: Any = Evaluation(files, Buffers(), HeldValues(limit), KernelBackend, {})
        return with_, files


def told(ranges: Iterable[tuple[Tensor, int, int]]) -> Elements:
    return {(leaf.name, k) for leaf, first, last in ranges for k in range(first, last)}


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Return the bits of numbers that bfloat16 can represent."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16)


def leaf(name: str, array: np.ndarray, source: int = 0) -> Stored:
    dtype = "BF16" if array.dtype == np.uint16 else _DTYPES[str(array.dtype)]
    return Stored(name, dtype, array.shape, "f", OFFSET, source=source)


def _of(name: str) -> dict[str, Any]:
    return {"source": 0, "tensor": name}


def _counted(*shape: int, first: int = 1) -> np.ndarray:
    return np.arange(first, first + np.prod(shape), dtype=np.float32).reshape(shape)


EXAMPLES: dict[str, Callable[[], Example]] = {}


def _example(make: Callable[[], Example]) -> Callable[[], Example]:
    EXAMPLES[make.__name__] = make
    return make


@_example
def stored() -> Example:
    values = bfloat16(_counted(3, 4))
    return Example(leaf("w", values), {"w": values}, values, _of("w"))


@_example
def rounded() -> Example:
    """Make an example in which ties are rounded to even."""
    values = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -3], np.float32)
    result = bfloat16(np.array([1, 1, 1 + 2**-6, 1 + 2**-7, -3]))
    tensor = Rounded.of(leaf("w", values), "BF16")
    return Example(tensor, {"w": values}, result, {"rounded": "BF16", "operand": _of("w")})


@_example
def sliced() -> Example:
    values = _counted(5, 4)
    tensor = Sliced.of("part", (2, 3), leaf("w", values), 7)
    expected = values.reshape(-1)[7:13].reshape(2, 3)
    json = {"sliced": _of("w"), "first": 7, "shape": [2, 3]}
    return Example(tensor, {"w": values}, expected, json)


@_example
def stacked() -> Example:
    whole = bfloat16(_counted(3, 2, 5))
    arrays = {f"p{k}": part for k, part in enumerate(whole)}
    parts = tuple(leaf(name, array) for name, array in arrays.items())
    json = {"stacked": [_of("p0"), _of("p1"), _of("p2")], "shape": [6, 5]}
    return Example(Stacked.of("w", (6, 5), parts), arrays, whole.reshape(6, 5), json)


@_example
def spilled() -> Example:
    """Make an example whose scratch file is missing, so that it is computed again."""
    values = bfloat16(_counted(3, 4))
    tensor = Spilled.of(leaf("w", values), 5)
    return Example(tensor, {"w": values}, values, _of("w"))


@_example
def tiled() -> Example:
    whole = bfloat16(_counted(5, 6))
    places = {"b": (0, 4, 2, 6), "a": (0, 4, 0, 2), "c": (4, 5, 0, 6)}
    arrays = {
        name: np.ascontiguousarray(whole[top:bottom, left:right])
        for name, (top, bottom, left, right) in places.items()
    }
    tiles = tuple(leaf(name, array) for name, array in arrays.items())
    offsets = tuple((top, left) for top, _, left, _ in places.values())
    json = {
        "tiles": [_of("b"), _of("a"), _of("c")],
        "offsets": [[0, 2], [0, 0], [4, 0]],
        "shape": [5, 6],
    }
    return Example(Tiled.of("w", (5, 6), tiles, offsets), arrays, whole, json)


def _rows(origins: list[int], firsts: list[int], named: int, members: Any) -> Rows:
    return Rows.of(np.array(origins), np.array(firsts), named, members)


@_example
def gathered() -> Example:
    """Make an example with two runs of each of two tables, a run of two averages, and zeros."""
    f32, bf16 = _counted(6, 3), _counted(4, 3, first=100)
    rows = _rows(
        [0, 0, 1, AVERAGE, AVERAGE, ZERO, ZERO, 0, 1],
        [2, 3, 1, 0, 1, 0, 0, 0, 3],
        9,
        (np.array([0, 2, 5]), np.array([0, 1, 1, 1, 0]), np.array([5, 0, 2, 2, 1])),
    )
    expected = np.stack(
        [
            *(f32[2], f32[3], bf16[1]),
            (f32[5] + bf16[0]) / 2,
            ((bf16[2] + bf16[2] + f32[1]).astype(np.float64) / 3).astype(np.float32),
            *(0 * f32[0], 0 * f32[0], f32[0], bf16[3]),
        ]
    )
    arrays = {"t": f32, "u": bfloat16(bf16)}
    tables = tuple(leaf(name, array) for name, array in arrays.items())
    tensor = Gathered.of("e", (9, 3), tables, rows)
    json = {"rows": rows.as_json(), "tables": [_of("t"), _of("u")]}
    return Example(tensor, arrays, expected, json)


@_example
def padded() -> Example:
    """Make an example whose rows of padding are the mean of all other rows, after rounding."""
    values = np.array([[1 + 2**-8, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    none = np.array([], np.int64)
    rows = _rows([0, 0, 0, MEAN, MEAN], [0, 2, 3, 0, 0], 3, (np.array([0]), none, none))
    expected = np.array([[1, 2], [5, 6], [7, 8], [13 / 3, 16 / 3], [13 / 3, 16 / 3]], np.float32)
    table = Rounded.of(leaf("t", values), "BF16", as_input=True)
    tensor = Gathered.of("e", (5, 2), (table,), rows)
    json = {"rows": rows.as_json(), "tables": [{"rounded": "BF16", "operand": _of("t")}]}
    return Example(tensor, {"t": values}, expected, json)


@_example
def halved() -> Example:
    values = bfloat16(_counted(8, 3))
    order = [0, 2, 1, 3, 4, 6, 5, 7]
    tensor = Halved.of(leaf("w", values), 4)
    return Example(tensor, {"w": values}, values[order], {"halved": _of("w"), "group": 4})


@_example
def interleaved() -> Example:
    values = bfloat16(_counted(12, 3))
    order = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    tensor = Interleaved.of(leaf("w", values), 6)
    return Example(tensor, {"w": values}, values[order], {"interleaved": _of("w"), "group": 6})


@_example
def transposed() -> Example:
    values = bfloat16(_counted(4, 3))
    tensor = Transposed.of(leaf("w", values))
    return Example(tensor, {"w": values}, values.T, {"transposed": _of("w")})


def _packed(numbers: np.ndarray, bits: int, order: tuple[int, ...], kind: Any) -> np.ndarray:
    """Pack numbers of the last dimension into elements: number n has the place ``order[n]``."""
    groups = numbers.reshape(*numbers.shape[:-1], -1, len(order)).astype(np.uint64)
    words = np.zeros(groups.shape[:-1], np.uint64)
    for number, place in enumerate(order):
        words |= groups[..., number] << np.uint64(bits * place)
    found: np.ndarray = words.astype(np.uint32).view(np.int32) if kind is np.int32 else words
    return found.astype(kind)


def _in_bytes(numbers: np.ndarray) -> np.ndarray:
    found: np.ndarray = (numbers[:, ::2] | numbers[:, 1::2] << 4).astype(np.uint8)
    return found


def _numbers(rows: int, columns: int, bits: int = 4) -> np.ndarray:
    return (np.arange(rows * columns).reshape(rows, columns) * 7 + 3) % (1 << bits)


def _repacked_json(**own: Any) -> dict[str, Any]:
    places = {"bits": 4, "along": 1, "order": list(range(8)), "transposed": False, "added": 0}
    return {"repacked": _of("q")} | places | own


@_example
def repacked_in_order_of_awq() -> Example:
    """Make an example of a matrix (in, out) whose words contain the outputs in AWQ's order."""
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    numbers = _numbers(10, 16)  # (in, out)
    packed = _packed(numbers, 4, order, np.int32)
    tensor = Repacked.of(leaf("q", packed), 16, 10, bits=4, along=1, order=order, transposed=True)
    json = _repacked_json(order=list(order), transposed=True)
    return Example(tensor, {"q": packed}, _in_bytes(numbers.T), json)


@_example
def repacked_along_columns() -> Example:
    """Make an example of a matrix (in, out) whose words contain the inputs."""
    numbers = _numbers(16, 6)  # (in, out)
    packed = np.ascontiguousarray(_packed(numbers.T.copy(), 4, tuple(range(8)), np.int32).T)
    tensor = Repacked.of(leaf("q", packed), 6, 16, bits=4, along=0, transposed=True)
    json = _repacked_json(along=0, transposed=True)
    return Example(tensor, {"q": packed}, _in_bytes(numbers.T), json)


@_example
def repacked_with_rows_to_spare() -> Example:
    """Make an example of zero points whose words contain the rows: the last has too many."""
    numbers = _numbers(24, 3)
    packed = np.ascontiguousarray(_packed(numbers.T.copy(), 4, tuple(range(8)), np.int32).T)
    tensor = Repacked.of(leaf("q", packed), 19, 3, bits=4, along=0, added=1)
    expected = ((numbers + 1) % 16)[:19].astype(np.uint8)
    return Example(tensor, {"q": packed}, expected, _repacked_json(along=0, added=1))


@_example
def repacked_bytes() -> Example:
    """Make an example of 8-bit numbers, four in a word; a row has fewer than its words."""
    numbers = _numbers(3, 8, bits=8)
    packed = _packed(numbers, 8, (0, 1, 2, 3), np.int32)
    tensor = Repacked.of(leaf("q", packed), 3, 7, bits=8, along=1)
    json = _repacked_json(bits=8, order=[0, 1, 2, 3])
    return Example(tensor, {"q": packed}, numbers[:, :7].astype(np.uint8), json)


@_example
def repacked_pairs() -> Example:
    numbers = _numbers(3, 8)
    packed = _packed(numbers, 4, (1, 0), np.uint8)
    tensor = Repacked.of(leaf("q", packed), 3, 8, bits=4, along=1, order=(1, 0))
    return Example(tensor, {"q": packed}, _in_bytes(numbers), _repacked_json(order=[1, 0]))


def _dequantised(codes: Stored, **given: Any) -> Dequantised:
    rows, columns = (1, *codes.shape)[-2:]
    fixed = {"name": "w", "dtype": "F32", "shape": codes.shape, "scheme": "made up"}
    more: dict[str, Any] = {"codebook": None, "rows": rows, "columns": columns, "scales": None}
    return Dequantised(**{**fixed, "codes": codes, **more, **given})


@_example
def dequantised() -> Example:
    """Make an example of two matrices of codes in pairs, with blocks cut at both edges."""
    book = Codebook("thirds", tuple(3.0 * n for n in range(16)), high_first=True)
    raw = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3) * 7
    scales, zeros = _counted(2, 3, 2) / 4, _counted(2, 3, 2, first=-4)
    numbers = 3.0 * np.stack([raw >> 4, raw & 15], axis=-1).reshape(2, 5, 6)
    wide = [np.repeat(np.repeat(g, 2, 1), 4, 2)[:, :5, :6] for g in (scales, zeros)]
    expected = ((numbers - wide[1]) * wide[0] * 2 + 0.5).astype(np.float32)
    arrays = {"c": raw, "s": scales, "z": zeros}
    tensor = _dequantised(
        leaf("c", raw),
        shape=(2, 5, 6),
        columns=6,
        codebook=book,
        block=(2, 4),
        scales=leaf("s", scales),
        zeros=leaf("z", zeros),
        factor=2.0,
        added=0.5,
    )
    json = {
        "dequantised": "made up",
        "of": _of("c"),
        "codebook": "thirds",
        "block": [2, 4],
        "factor": 2.0,
        "added": 0.5,
        "scales": _of("s"),
        "zeros": _of("z"),
    }
    return Example(tensor, arrays, expected, json)


@_example
def dequantised_by_groups_of_columns() -> Example:
    """Make an example in which a tensor names each column's block, and scales divide numbers."""
    codes = np.arange(-12, 12, dtype=np.int8).reshape(4, 6)
    scales = np.array([[1, 2], [4, -8]], np.float32)
    columns = np.array([1, 0, 0, 1, 1, 0], np.int32)
    zeros = np.array([[1, 0], [-3, 2]], np.float32)
    shifted = codes - np.repeat(zeros[:, columns], 2, 0)
    expected = (shifted / np.repeat(scales[:, columns], 2, 0)).astype(np.float32)
    arrays = {"c": codes, "s": scales, "z": zeros, "g": columns}
    tensor = _dequantised(
        leaf("c", codes),
        block=(2, 3),
        scales=leaf("s", scales),
        zeros=leaf("z", zeros),
        block_of_column=leaf("g", columns),
        divides=True,
    )
    json = {
        "dequantised": "made up",
        "of": _of("c"),
        "codebook": None,
        "block": [2, 3],
        "divides": True,
        "scales": _of("s"),
        "zeros": _of("z"),
        "block_of_column": _of("g"),
    }
    return Example(tensor, arrays, expected, json)


@_example
def dequantised_whose_last_row_is_shorter() -> Example:
    """Make an example of consecutive blocks of numbers, whatever the rows of the weight are."""
    book = Codebook("sevenths", tuple(7.0 * n for n in range(16)))
    raw, scales = np.arange(7, dtype=np.uint8) * 31, _counted(3, 1) / 2
    numbers = 7.0 * np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)
    expected = (numbers * np.repeat(scales.reshape(-1), 6)[:14]).astype(np.float32)
    tensor = _dequantised(
        leaf("c", raw),
        shape=(2, 7),
        rows=3,
        columns=6,
        codebook=book,
        block=(1, 6),
        scales=leaf("s", scales),
    )
    json = {
        "dequantised": "made up",
        "of": _of("c"),
        "codebook": "sevenths",
        "block": [1, 6],
        "scales": _of("s"),
    }
    return Example(tensor, {"c": raw, "s": scales}, expected.reshape(2, 7), json)


@_example
def dequantised_with_one_scale() -> Example:
    """Make an example whose only scale divides all numbers, in rows of its last dimension."""
    codes, scale = np.arange(-6, 6, dtype=np.int8).reshape(2, 2, 3), np.array([4], np.float32)
    tensor = Dequantised.elementwise(
        leaf("c", codes), (2, 2, 3), "one", scale=leaf("s", scale), divides=True
    )
    json = {
        "dequantised": "one",
        "of": _of("c"),
        "codebook": None,
        "block": [4, 3],
        "divides": True,
        "scales": _of("s"),
    }
    return Example(tensor, {"c": codes, "s": scale}, codes.astype(np.float32) / 4, json)


@_example
def shifted() -> Example:
    values = bfloat16(_counted(3, 4))
    tensor = Dequantised.shifted(leaf("w", values), -0.5)
    json = {"dequantised": "shifted", "of": _of("w"), "codebook": None, "block": [1, 12]}
    return Example(tensor, {"w": values}, _counted(3, 4) - np.float32(0.5), json | {"added": -0.5})


def _decode(blocks: np.ndarray, out: np.ndarray) -> None:
    """Decode blocks, each of which is a scale and three numbers."""
    out[:] = blocks[:, :1].astype(np.float32) * blocks[:, 1:]


def _encode(values: np.ndarray, blocks: np.ndarray) -> None:
    blocks[:, 0] = 2
    blocks[:, 1:] = values / 2


@_example
def packed_blocks() -> Example:
    raw = np.arange(28, dtype=np.uint8)
    expected = np.empty((7, 3), np.float32)
    _decode(raw.reshape(7, 4), expected)
    tensor = PackedBlocks(
        name="w",
        dtype="F32",
        shape=(7, 3),
        scheme="made up",
        coded=leaf("c", raw),
        elements=3,
        block_bytes=4,
        decode=_decode,
        milliseconds=1.5,
    )
    json = {"blocks": "made up", "of": _of("c"), "shape": [7, 3]}
    return Example(tensor, {"c": raw}, expected, json)


@_example
def encoded() -> Example:
    values = _counted(7, 3)
    expected = np.empty((7, 4), np.uint8)
    _encode(values, expected)
    tensor = Encoded(
        name="w",
        dtype="U8",
        shape=(7, 4),
        scheme="made up",
        operand=leaf("w", values),
        elements=3,
        block_bytes=4,
        encode=_encode,
        decode=_decode,
        milliseconds=2.5,
    )
    json = {"encoded": "made up", "of": _of("w"), "shape": [7, 4]}
    return Example(tensor, {"w": values}, expected, json)


FORM = Form("int4", Code.INT4, 7.5, "BF16")


@_example
def quantised() -> Example:
    """Make an example with blocks of (2, 4) cut at both edges, and scales rounded to bfloat16."""
    values = bfloat16(np.arange(-21, 21).reshape(7, 6).astype(np.float32) * 0.5)
    numbers = np.arange(-21, 21).reshape(7, 6) * 0.5
    tops, lefts = range(0, 7, 2), range(0, 6, 4)
    largest = [[np.abs(numbers[t : t + 2, c : c + 4]).max() for c in lefts] for t in tops]
    exact = np.array(largest, np.float32) / np.float32(7.5)
    bits = exact.view(np.uint32)
    scales = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    grid = (scales.astype(np.uint32) << 16).view(np.float32)
    wide = np.repeat(np.repeat(grid, 2, 0), 4, 1)[:7, :6]
    codes = np.rint(numbers.astype(np.float32) / wide).clip(-8, 7).astype(int) + 8
    expected = np.concatenate(
        [_in_bytes(codes).reshape(-1), scales.reshape(-1).view(np.uint8), [1, 2, 3]]
    ).astype(np.uint8)
    tensor = Quantised.of("w", leaf("w", values), FORM, (2, 4), bytes([1, 2, 3]))
    json = {"quantised": "int4", "of": _of("w"), "block": [2, 4], "scales": "BF16"}
    return Example(tensor, {"w": values}, expected, json)


@_example
def drawn() -> Example:
    tensor = Drawn.of("w", (4, 3), "key", 0.25)
    expected = ((uniforms("key", 0, 12) * 2 - 1) * 0.25).astype(np.float32).reshape(4, 3)
    json = {"drawn": {"uniform": 0.25}, "key": "key", "shape": [4, 3]}
    return Example(tensor, {}, expected, json)


@_example
def drawn_normally() -> Example:
    expected = normals("key", 0, 12).astype(np.float32).reshape(4, 3)
    json = {"drawn": "normal", "key": "key", "shape": [4, 3]}
    return Example(Drawn.of("w", (4, 3), "key"), {}, expected, json)


@_example
def filled() -> Example:
    expected = np.full((4, 3), bfloat16(np.array([1.5]))[0])
    tensor = Filled("w", "BF16", (4, 3), 1.5)
    return Example(tensor, {}, expected, {"filled": 1.5, "dtype": "BF16", "shape": [4, 3]})


@_example
def literal() -> Example:
    expected = np.array([7, 0, 255], np.uint8)
    tensor = Literal.of("w", "U8", (7, 0, 255))
    return Example(tensor, {}, expected, {"literal": [7, 0, 255], "dtype": "U8"})


@_example
def literal_floats() -> Example:
    expected = np.array([0.5, -1.25], np.float32)
    tensor = Literal.of("w", "F32", (0.5, -1.25))
    return Example(tensor, {}, expected, {"literal": [0.5, -1.25], "dtype": "F32"})


@_example
def merged() -> Example:
    """Make an example of operands of two types, in blocks of 5 elements."""
    a, b = _counted(4, 3), _counted(4, 3, first=8)
    arrays = {"a": a, "b": bfloat16(b)}
    tensor = Merged(
        name="m",
        dtype="F32",
        shape=(4, 3),
        method="linear",
        operands=tuple(leaf(name, array) for name, array in arrays.items()),
        params={"normalize": False},
        per_operand=({"weight": 0.25}, {"weight": 2.0}),
        base=None,
        seed=0,
        block_elements=5,
    )
    json = {
        "method": "linear",
        "params": {"normalize": False},
        "base": None,
        "dtype": "F32",
        "operands": [
            {"params": {"weight": 0.25}, "of": _of("a")},
            {"params": {"weight": 2.0}, "of": _of("b")},
        ],
    }
    return Example(tensor, arrays, 0.25 * a + 2 * b, json)


def _adapted(transposed: bool, dora: bool, exact: bool) -> Example:
    weight = _counted(3, 4)  # (out, in)
    a, b = _counted(2, 4, first=-3), _counted(3, 2, first=2)
    changed = weight + 0.5 * 4 * b @ a
    arrays = {
        "w": bfloat16(weight.T if transposed else weight),
        "a": a,
        "b": b,
        "alpha": np.array([4], np.float32),
    }
    if dora:
        norms = np.sqrt((changed.astype(np.float64) ** 2).sum(1))
        arrays["m"] = norms.astype(np.float32) * np.array([1, 2, 4], np.float32)
        changed = changed * (arrays["m"].astype(np.float64) / norms)[:, None]
    leaves = {name: leaf(name, array, source=5 * (name != "w")) for name, array in arrays.items()}
    tensor: Tensor = Adapted.of(
        "w", leaves["w"], leaves["a"], leaves["b"], 0.5, transposed, leaves.get("m"),
        leaves["alpha"],
    )  # fmt: skip
    expected = (changed.T if transposed else changed).astype(np.float32)
    by = ["a", "b", *(["m"] if dora else []), "alpha"]
    json = {
        "adapted": _of("w"),
        "by": [_of(name) | {"source": 5} for name in by],
        "scale": 0.5,
    }
    if exact:
        tensor, json = tensor.exact, json | {"dtype": "F32"}
    else:
        bits = np.ascontiguousarray(expected).view(np.uint32)
        expected = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return Example(tensor, arrays, expected, json)


OF_TORCH: dict[str, Callable[[], Example]] = {
    "adapted": lambda: _adapted(False, False, False),
    "adapted_exactly": lambda: _adapted(False, False, True),
    "adapted_transposed": lambda: _adapted(True, False, True),
    "adapted_with_magnitudes": lambda: _adapted(False, True, True),
    "adapted_transposed_with_magnitudes": lambda: _adapted(True, True, True),
}
