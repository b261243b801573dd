"""The quantisations of llama.cpp: blocks of 32 or 256 codes, with their scales between them.

Those of 32 whole numbers are decoded here:

    Q4_0, Q5_0, Q8_0: weight = scale * (number - half)        Q4_1, Q5_1: scale * number + least

A block begins with its scale and, if it has one, its least number, in float16. In Q5, the fifth
bits of all numbers are next. Then come the numbers, two in a byte: number n in the lower bits,
number n + 16 in the upper ones. Source: ggml, ggml-common.h. The other schemes (K-quants, IQ4,
MXFP4) are decoded by llama.cpp's package.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np

from resumerge.tensors import Encoded, PackedBlocks, Tensor
from resumerge.tensors.quantised.encoded import Encode
from resumerge.tensors.quantised.packed_blocks import Decode

EXTRA = "pip install 'resumerge[gguf]'"
"""The command that installs the package which decodes the other schemes."""

MILLISECONDS_OF_PACKAGE = 9.0
"""Time of one core for 2^20 elements that the package decodes."""


@dataclass(frozen=True)
class _Whole:
    """Blocks of 32 whole numbers.

    Args:
        bits: the bits of a number: 4, 5 or 8.
        has_least: whether a block has a least number, which is added; else numbers are around 0.
        milliseconds: time of one core for 2^20 elements.
    """

    bits: int
    has_least: bool
    milliseconds: float

    def decode(self, blocks: np.ndarray, out: np.ndarray) -> None:
        """Write the numbers of blocks."""
        begin = 4 if self.has_least else 2
        heads = np.ascontiguousarray(blocks[:, :begin]).view(np.float16).astype(np.float32)
        with np.errstate(all="ignore"):
            np.multiply(self._numbers(blocks[:, begin:]), heads[:, :1], out=out)
            if self.has_least:
                out += heads[:, 1:]

    def _numbers(self, codes: np.ndarray) -> np.ndarray:
        """Return the whole numbers, int8."""
        if self.bits == 8:
            return codes.view(np.int8)
        pairs = codes[:, -16:]
        numbers = np.concatenate((pairs & 15, pairs >> 4), axis=1)
        if self.bits == 5:
            numbers |= np.unpackbits(codes[:, :4], axis=1, bitorder="little") << 4
        signed = numbers.view(np.int8)
        return signed if self.has_least else signed - np.int8(1 << (self.bits - 1))


_WHOLE = {
    "Q4_0": _Whole(4, False, 1.5),
    "Q4_1": _Whole(4, True, 1.8),
    "Q5_0": _Whole(5, False, 2.0),
    "Q5_1": _Whole(5, True, 2.3),
    "Q8_0": _Whole(8, False, 0.7),
}


def needs_package(scheme: str) -> bool:
    """Return whether a scheme needs llama.cpp's package and that is not installed."""
    return scheme not in _WHOLE and find_spec("gguf") is None


def decoded(
    name: str, shape: tuple[int, ...], scheme: str, coded: Tensor, elements: int, nbytes: int
) -> PackedBlocks:
    """Return the tensor that is decoded from blocks.

    Args:
        name: the tensor's name.
        shape: its shape.
        scheme: the name of the quantisation.
        coded: the bytes of the blocks, U8.
        elements: elements of a block.
        nbytes: bytes of a block.
    """
    whole = _WHOLE.get(scheme)
    decode: Decode = whole.decode if whole else partial(_by_package, scheme)
    return PackedBlocks(
        name=name,
        dtype="F32",
        shape=shape,
        scheme=scheme,
        coded=coded,
        elements=elements,
        block_bytes=nbytes,
        decode=decode,
        milliseconds=whole.milliseconds if whole else MILLISECONDS_OF_PACKAGE,
    )


def _by_package(scheme: str, blocks: np.ndarray, out: np.ndarray) -> None:
    """Write the numbers of blocks as the package decodes them."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    row = np.ascontiguousarray(blocks).reshape(1, -1)
    with np.errstate(all="ignore"):
        out[:] = dequantize(row, GGMLQuantizationType[scheme]).reshape(out.shape)


def encoded(tensor: Tensor, scheme: str) -> Encoded:
    """Return the bytes of the blocks that a tensor is quantised to.

    Args:
        tensor: a tensor in float32; its rows are whole blocks.
        scheme: a name of `ENCODED`.
    """
    encode, elements, nbytes, milliseconds = ENCODED[scheme]
    rows = (*tensor.shape[:-1], tensor.shape[-1] // elements * nbytes)
    return Encoded(
        name=tensor.name,
        dtype="U8",
        shape=rows,
        scheme=scheme,
        operand=tensor,
        elements=elements,
        block_bytes=nbytes,
        encode=encode,
        decode=_WHOLE[scheme].decode,
        milliseconds=milliseconds,
    )


def _encode_q8_0(values: np.ndarray, out: np.ndarray) -> None:
    """Encode blocks: scale = largest magnitude / 127, number = round(value / scale).

    Halves are rounded away from zero, and a value is multiplied by the scale's reciprocal in
    float32, before the scale is rounded to float16. Source: ggml, quantize_row_q8_0_ref.
    """
    with np.errstate(all="ignore"):
        scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
        numbers = values * _reciprocal(scale)
        nearest = np.rint(numbers)
        numbers -= nearest
        nearest += (numbers == 0.5) & (nearest >= 0)
        nearest -= (numbers == -0.5) & (nearest <= 0)
        _without_nonsense(nearest)
        out[:, :2] = scale.astype(np.float16).view(np.uint8)
        out[:, 2:] = nearest.astype(np.int8).view(np.uint8)


def _encode_q4_0(values: np.ndarray, out: np.ndarray) -> None:
    """Encode blocks: scale = the value of largest magnitude / -8, number = value / scale + 8.

    The first 16 numbers are in the low halves of the bytes. Source: ggml, quantize_row_q4_0_ref.
    """
    with np.errstate(all="ignore"):
        place = np.abs(values).argmax(axis=1)[:, None]
        scale = np.take_along_axis(values, place, axis=1) / np.float32(-8)
        numbers = np.trunc(values * _reciprocal(scale) + np.float32(8.5))
        _without_nonsense(numbers)
        whole = np.minimum(numbers, np.float32(15)).astype(np.uint8)
        out[:, :2] = scale.astype(np.float16).view(np.uint8)
        out[:, 2:] = whole[:, :16] | (whole[:, 16:] << np.uint8(4))


def _reciprocal(scale: np.ndarray) -> np.ndarray:
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def _without_nonsense(numbers: np.ndarray) -> None:
    """Replace NaN and infinity by 0: their codes would depend on the processor."""
    if not np.isfinite(numbers.sum()):
        numbers[~np.isfinite(numbers)] = 0


ENCODED: dict[str, tuple[Encode, int, int, float]] = {
    "Q8_0": (_encode_q8_0, 32, 34, 8.5),
    "Q4_0": (_encode_q4_0, 32, 18, 7.2),
}
"""The schemes that are written: encoder, elements and bytes of a block, milliseconds of one core
for 2^20 elements."""
