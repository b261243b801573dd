"""Integers of 4 or 8 bits, packed into int32: pack-quantized of compressed-tensors.

    weight = scale * (number - zero)

``weight_packed`` contains the numbers of a row one after the other, the first in the lowest bits.
Half of the range is added to each number, so that it is not negative. Zero points are packed in the
same way, but along the other dimension. ``weight_g_idx`` contains the group of each column if the
groups are not consecutive.

Outputs have 4 bits in groups of 128 columns, symmetric, rounded to nearest: ``scale = largest
magnitude / 7.5``, numbers from -8 to 7. Source: compressed-tensors, compressors/pack_quantized;
quantization/utils/helpers.py, `calculate_qparams`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from resumerge.kernels.quantised import Code
from resumerge.quantisation.grids import as_bytes, as_scales, scaled_weight
from resumerge.quantisation.output import (
    BY_COMPRESSED_TENSORS,
    WRITTEN_SCALES,
    Layout,
    OutputScheme,
    of_compressed_tensors,
)
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight
from resumerge.tensors import Dequantised, Repacked, Stored, Tensor
from resumerge.tensors.quantised.codes import Codebook, whole_numbers
from resumerge.tensors.quantised.form import Form

WORD = 32
"""The number of bits of an integer in which numbers are packed."""

_GROUPS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}

INT4 = OutputScheme(
    name="int4",
    kind="whole numbers of 4 bits in groups of 128",
    layout=Layout(
        form=Form("int4", Code.INT4, 7.5, "BF16"),
        block=(1, 128),
        codes="weight_packed",
        scales="weight_scale",
        dtype="I32",
        shape="weight_shape",
    ),
    config=of_compressed_tensors("pack-quantized", _GROUPS),
    loaders=BY_COMPRESSED_TENSORS,
)


class PackQuantized(Scheme):
    """Weights of packed integers with scales, in the format of compressed-tensors."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for stem, packed_weight in checkpoint.ending(".weight_packed"):
            if packed_weight.dtype == "I32":
                yield _weight(checkpoint, stem, packed_weight)


def _weight(checkpoint: Checkpoint, stem: str, packed: Stored) -> Weight:
    name = f"{stem}.weight"
    scales = checkpoint.need(f"{name}_scale", packed.name)
    shape = _shape(checkpoint, stem)
    bits = _bits(checkpoint, packed, shape)
    is_packed_matrix = len(packed.shape) == 2 and packed.is_contiguous
    if not is_packed_matrix or packed.shape != (shape[0], -(-shape[1] * bits // WORD)):
        raise checkpoint.unfit(
            packed.name,
            f"int32 of shape {[shape[0], -(-shape[1] * bits // WORD)]}",
            f"{packed.dtype} of shape {list(packed.shape)}",
        )
    codes, codebook = _codes(packed, shape, bits)
    zeros = checkpoint.find(f"{name}_zero_point")
    order = checkpoint.find(f"{name}_g_idx")
    if order is not None and (order.dtype != "I32" or order.shape != shape[1:]):
        raise checkpoint.unfit(
            order.name,
            f"int32 of shape {[shape[1]]}: the group of each column",
            f"{order.dtype} of shape {list(order.shape)}",
        )
    tensor = scaled_weight(
        checkpoint,
        name,
        "pack-quantized",
        shape,
        codes,
        as_scales(checkpoint, scales),
        codebook=codebook,
        zeros=None if zeros is None else _zeros(checkpoint, zeros, scales, bits),
        block_of_column=order,
    )
    stored_tensors = (packed, scales, zeros, order)
    return Weight(
        name,
        tensor,
        tuple(stored_tensor.name for stored_tensor in stored_tensors if stored_tensor is not None),
        f"whole numbers of {bits} bits in groups of {tensor.block[1]}",
        checkpoint.names(f"{name}_shape"),
        None if zeros or order else _written(bits, packed, scales, tensor),
    )


def _written(bits: int, packed: Stored, scales: Stored, tensor: Dequantised) -> Layout | None:
    """Return the layout in which a changed weight is written; None if it cannot be written.

    Only numbers of 4 bits can be written, in rows of whole words and blocks of whole bytes, with
    scales of `WRITTEN_SCALES`.
    """
    has_whole_words = tensor.columns % (WORD // 4) == 0 and tensor.block[1] % 2 == 0
    if bits != 4 or scales.dtype not in WRITTEN_SCALES or not has_whole_words:
        return None
    form = replace(INT4.layout.form, scales=scales.dtype)
    return replace(INT4.layout, form=form, block=tensor.block, shape="")


def _codes(packed: Stored, shape: tuple[int, ...], bits: int) -> tuple[Tensor, Codebook]:
    """Return the codes of a weight, and the codebook that decodes them."""
    numbers_per_word, half = WORD // bits, 1 << (bits - 1)
    if shape[1] % numbers_per_word == 0:
        return as_bytes(packed, (shape[0], 4 * packed.shape[1])), whole_numbers(bits, half)
    numbers = Repacked.of(packed, shape[0], shape[1], bits=bits, along=1)
    return numbers, numbers.codebook(half)


def _shape(checkpoint: Checkpoint, stem: str) -> tuple[int, ...]:
    """Return the shape of a weight, which is stored in a tensor."""
    shape_tensor = checkpoint.need(f"{stem}.weight_shape", f"{stem}.weight_packed")
    if shape_tensor.dtype not in ("I64", "I32") or shape_tensor.numel != 2:
        raise checkpoint.unfit(
            shape_tensor.name, "two whole numbers", f"{shape_tensor.numel} {shape_tensor.dtype}"
        )
    dtype = np.int64 if shape_tensor.dtype == "I64" else np.int32
    shape = tuple(np.frombuffer(checkpoint.read(shape_tensor), dtype).tolist())
    if min(shape) < 1:
        raise checkpoint.unfit(shape_tensor.name, "numbers of 1 and more", str(list(shape)))
    return shape


def _bits(checkpoint: Checkpoint, packed: Stored, shape: tuple[int, ...]) -> int:
    """Return the number of bits of a packed number, inferred from the shapes."""
    words = packed.shape[-1] if packed.shape else 0
    for bits in (4, 8):
        if words == -(-shape[1] * bits // WORD):
            return bits
    raise checkpoint.unfit(
        packed.name,
        f"numbers of 4 or 8 bits, for rows of {shape[1]}",
        f"rows of {words} int32{_stated_bits(checkpoint.stated)}",
    )


def _stated_bits(stated: Mapping[str, Any]) -> str:
    groups = stated.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and "num_bits" in weights:
            return f"; config.json says num_bits: {str(weights['num_bits'])[:10]}"
    return ""


def _zeros(checkpoint: Checkpoint, zeros: Stored, scales: Stored, bits: int) -> Dequantised:
    """Return a zero point for each scale, as float32."""
    shape = (scales.shape[0], scales.numel // max(1, scales.shape[0])) if scales.shape else (1, 1)
    numbers_per_word = WORD // bits
    if zeros.dtype != "I32" or zeros.shape != (-(-shape[0] // numbers_per_word), shape[1]):
        raise checkpoint.unfit(
            zeros.name,
            f"int32 of shape {[-(-shape[0] // numbers_per_word), shape[1]]}",
            f"{zeros.dtype} of shape {list(zeros.shape)}",
        )
    numbers = Repacked.of(zeros, shape[0], shape[1], bits=bits, along=0)
    return as_numbers(numbers, 1 << (bits - 1))


def as_numbers(numbers: Repacked, subtracted: int = 0) -> Dequantised:
    """Return packed integers as float32.

    Args:
        numbers: the packed integers.
        subtracted: the number that is subtracted from each integer.
    """
    shape = numbers.shape[0], numbers.columns
    return Dequantised.elementwise(numbers, shape, "zero points", numbers.codebook(subtracted))
