"""The quantisations of llama.cpp: blocks of 32 or 256 codes, each stored with its scales.

This module decodes the schemes with blocks of 32 integers:

    Q4_0, Q5_0, Q8_0: weight = scale * (number - half)        Q4_1, Q5_1: scale * number + least

A block starts with its scale in float16. In Q4_1 and Q5_1, the least number follows, in float16. In
Q5_0 and Q5_1, the fifth bits of all numbers follow. The numbers come last. In schemes of 4 and 5
bits, a byte contains number n in the lower bits and number n + 16 in the upper bits. Source: ggml,
ggml-common.h. llama.cpp's Python package decodes all other schemes (K-quants, IQ4, MXFP4).
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
"""The command that installs the package for the other schemes."""

MILLISECONDS_OF_PACKAGE = 9.0
"""The time that the package takes to decode 2^20 elements, on one core."""


@dataclass(frozen=True)
class _Whole:
    """A scheme with blocks of 32 integers.

    Args:
        bits: the bits of a number: 4, 5 or 8.
        has_least: whether a block has a least number, which is added; else numbers are signed.
        milliseconds: the time to decode 2^20 elements on one core.
    """

    bits: int
    has_least: bool
    milliseconds: float

    def decode(self, blocks: np.ndarray, out: np.ndarray) -> None:
        """Write the weights of blocks.

        Args:
            blocks: uint8, a row for each block.
            out: float32, a row of 32 weights for each block.
        """
        head_bytes = 4 if self.has_least else 2
        heads = np.ascontiguousarray(blocks[:, :head_bytes]).view(np.float16).astype(np.float32)
        with np.errstate(all="ignore"):
            np.multiply(self._numbers(blocks[:, head_bytes:]), heads[:, :1], out=out)
            if self.has_least:
                out += heads[:, 1:]

    def _numbers(self, codes: np.ndarray) -> np.ndarray:
        """Return the integers of blocks, as int8, from the bytes after the scale (and least)."""
        if self.bits == 8:
            return codes.view(np.int8)
        byte_pairs = codes[:, -16:]
        numbers = np.concatenate((byte_pairs & 15, byte_pairs >> 4), axis=1)
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
    """Return whether a scheme needs llama.cpp's package, and the package is not installed."""
    return scheme not in _WHOLE and find_spec("gguf") is None


def decoded(
    name: str, shape: tuple[int, ...], scheme: str, coded: Tensor, elements: int, nbytes: int
) -> PackedBlocks:
    """Return the tensor that decodes blocks.

    Args:
        name: the model's name of the tensor, under which it is merged.
        shape: the shape of the decoded tensor.
        scheme: the name of the quantisation.
        coded: the bytes of the blocks, U8.
        elements: the number of elements of a block.
        nbytes: the number of bytes of a block.
    """
    decoder = _WHOLE.get(scheme)
    decode: Decode = decoder.decode if decoder else partial(_by_package, scheme)
    return PackedBlocks(
        name=name,
        dtype="F32",
        shape=shape,
        scheme=scheme,
        coded=coded,
        elements=elements,
        block_bytes=nbytes,
        decode=decode,
        milliseconds=decoder.milliseconds if decoder else MILLISECONDS_OF_PACKAGE,
    )


def _by_package(scheme: str, blocks: np.ndarray, out: np.ndarray) -> None:
    """Write the weights of blocks, decoded by llama.cpp's package."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    row = np.ascontiguousarray(blocks).reshape(1, -1)
    with np.errstate(all="ignore"):
        out[:] = dequantize(row, GGMLQuantizationType[scheme]).reshape(out.shape)


def encoded(tensor: Tensor, scheme: str) -> Encoded:
    """Return the tensor that quantises another tensor to the bytes of blocks.

    Args:
        tensor: a tensor in float32 whose rows are whole blocks.
        scheme: a key of `ENCODED`.
    """
    encode, elements, nbytes, milliseconds = ENCODED[scheme]
    coded_shape = (*tensor.shape[:-1], tensor.shape[-1] // elements * nbytes)
    return Encoded(
        name=tensor.name,
        dtype="U8",
        shape=coded_shape,
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

    Halves are rounded away from zero. A value is multiplied by the reciprocal of the scale, in
    float32, before the scale is rounded to float16. Source: ggml, quantize_row_q8_0_ref.
    """
    with np.errstate(all="ignore"):
        scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
        numbers = values * _reciprocal(scale)
        nearest_numbers = np.rint(numbers)
        numbers -= nearest_numbers
        nearest_numbers += (numbers == 0.5) & (nearest_numbers >= 0)
        nearest_numbers -= (numbers == -0.5) & (nearest_numbers <= 0)
        _zero_if_not_finite(nearest_numbers)
        out[:, :2] = scale.astype(np.float16).view(np.uint8)
        out[:, 2:] = nearest_numbers.astype(np.int8).view(np.uint8)


def _encode_q4_0(values: np.ndarray, out: np.ndarray) -> None:
    """Encode blocks: scale = the value of largest magnitude / -8, number = value / scale + 8.

    The first 16 numbers are in the lower halves of the bytes. Source: ggml, quantize_row_q4_0_ref.
    """
    with np.errstate(all="ignore"):
        largest_place = np.abs(values).argmax(axis=1)[:, None]
        scale = np.take_along_axis(values, largest_place, axis=1) / np.float32(-8)
        numbers = np.trunc(values * _reciprocal(scale) + np.float32(8.5))
        _zero_if_not_finite(numbers)
        codes = np.minimum(numbers, np.float32(15)).astype(np.uint8)
        out[:, :2] = scale.astype(np.float16).view(np.uint8)
        out[:, 2:] = codes[:, :16] | (codes[:, 16:] << np.uint8(4))


def _reciprocal(scale: np.ndarray) -> np.ndarray:
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def _zero_if_not_finite(numbers: np.ndarray) -> None:
    """Replace NaN and infinity by 0, because their codes would depend on the processor."""
    if not np.isfinite(numbers.sum()):
        numbers[~np.isfinite(numbers)] = 0


ENCODED: dict[str, tuple[Encode, int, int, float]] = {
    "Q8_0": (_encode_q8_0, 32, 34, 8.5),
    "Q4_0": (_encode_q4_0, 32, 18, 7.2),
}
"""The schemes that can be written: encoder, elements of a block, bytes of a block, milliseconds.

The milliseconds are the time to encode 2^20 elements on one core.
"""
