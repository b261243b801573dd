"""The grid of blocks of a weight that have one scale each."""

from __future__ import annotations

import math
from dataclasses import replace

from resumerge.quantisation.scheme import Checkpoint
from resumerge.tensors import Dequantised, Stored, Tensor, Transposed
from resumerge.tensors.quantised.codes import E8M0, Codebook

Grid = tuple[int, int, tuple[int, int]]
"""The rows of one matrix, its columns, and the (rows, columns) of a block."""

USUAL = 128
"""The rows and columns of a block in models whose configs do not state them."""

READ_SCALES = frozenset({"F32", "BF16", "F16", "F64", "F8_E4M3", "F8_E8M0"})
"""The dtypes of scales that are read as floats."""


def scaled_weight(
    checkpoint: Checkpoint,
    name: str,
    scheme: str,
    shape: tuple[int, ...],
    codes: Tensor,
    scales: Tensor,
    *,
    codebook: Codebook | None = None,
    block: tuple[int, int] | None = None,
    zeros: Tensor | None = None,
    block_of_column: Tensor | None = None,
) -> Dequantised:
    """Return the weight that is decoded from codes, with the grid of its scales.

    Args:
        checkpoint: the model, for messages.
        name: the weight's name.
        scheme: the name of the quantisation.
        shape: the weight's shape.
        codes: the codes, as for `Dequantised`.
        scales: floats, in the shape that they are stored in.
        codebook: the numbers of the codes.
        block: the (rows, columns) of a block that the model's config states.
        zeros: a zero point for each scale.
        block_of_column: for each column the number of its block.

    Raises:
        InputError: the weight and its scales do not fit.
    """
    rows, columns, size = _grid(checkpoint, name, shape, scales, block)
    return Dequantised(
        name=name,
        dtype="F32",
        shape=shape,
        scheme=scheme,
        codes=codes,
        codebook=codebook,
        rows=rows,
        columns=columns,
        block=size,
        scales=scales,
        zeros=zeros,
        block_of_column=block_of_column,
    )


def _grid(
    checkpoint: Checkpoint,
    name: str,
    shape: tuple[int, ...],
    scales: Tensor,
    block: tuple[int, int] | None,
) -> Grid:
    """Return the grid of a weight's scales.

    Args:
        checkpoint: the model, for messages.
        name: the weight's name.
        shape: the weight's shape.
        scales: one number for the whole weight, for each matrix of a stack, for each row, or for
            each block.
        block: the (rows, columns) of a block if the model's config states them; None to infer them.

    Raises:
        InputError: the shapes of weight and scales do not fit.
    """
    columns = shape[-1] if shape else 1
    rows = shape[-2] if len(shape) > 1 else 1
    matrices = math.prod(shape[:-2])
    if scales.numel == 1:
        return matrices * rows, columns, (max(1, matrices * rows), columns)
    stack = shape[:-2]
    if stack and scales.shape in (stack, (*stack, 1), (*stack, 1, 1)):
        return rows, columns, (rows, columns)
    if scales.shape in ((*stack, rows), (*stack, rows, 1)):
        return rows, columns, (1, columns)
    if len(scales.shape) == len(shape) > 1 and scales.shape[:-2] == shape[:-2]:
        high, wide = scales.shape[-2:]
        exact = _exact(rows, high), _exact(columns, wide)
        for size in (block,) if block else ((USUAL, USUAL), exact):
            if min(size) > 0 and (-(-rows // size[0]), -(-columns // size[1])) == (high, wide):
                return rows, columns, size
    raise checkpoint.unfit(
        name,
        f"scales for a weight of shape {list(shape)}, for each row or block"
        + (f" of {block[0]} x {block[1]} (weight_block_size)" if block else " of it"),
        f"scales of shape {list(scales.shape)}",
    )


def _exact(length: int, blocks: int) -> int:
    """Return the length of each of `blocks` equal blocks; 0 if the length is no multiple."""
    return length // blocks if blocks and length % blocks == 0 else 0


def as_scales(checkpoint: Checkpoint, scales: Stored, *, transposed: bool = False) -> Tensor:
    """Return scales as a tensor of floats. Scales stored as powers of two are decoded.

    Args:
        checkpoint: the model, for messages.
        scales: the scales as they are stored.
        transposed: whether they are stored in columns.

    Raises:
        InputError: they are no scales.
    """
    if scales.dtype in ("F8_E8M0", "U8"):
        codes: Tensor = replace(scales, dtype="U8")
        if transposed:
            codes = Transposed.of(codes)
        return Dequantised.elementwise(codes, codes.shape, "powers of two", E8M0)
    if scales.dtype not in READ_SCALES:
        raise checkpoint.unfit(scales.name, "scales that are floats", f"{scales.dtype} numbers")
    return Transposed.of(scales) if transposed else scales


def as_bytes(tensor: Stored, shape: tuple[int, ...]) -> Stored:
    """Return packed numbers as bytes of a shape; the bytes lie one after the other."""
    return replace(tensor, dtype="U8", shape=shape)
