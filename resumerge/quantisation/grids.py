"""The grid of a weight: blocks of rows and columns with one scale each."""

from __future__ import annotations

import math
from dataclasses import replace

from resumerge.quantisation.scheme import Checkpoint
from resumerge.tensors import Dequantised, Stored, Tensor, Transposed
from resumerge.tensors.quantised.codes import E8M0, Codebook

Grid = tuple[int, int, tuple[int, int]]
"""The rows of a matrix, its columns, and the (rows, columns) of a block."""

USUAL = 128
"""The rows and columns of a block that are assumed first if config.json states no block."""

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
    """Return the tensor that decodes a weight; the grid follows from the shape of the scales.

    Args:
        checkpoint: the model, for messages.
        name: the plain name of the weight, for the tensor and for messages.
        scheme: the name of the quantisation.
        shape: the shape of the decoded weight; matrices may be stacked along its first axes.
        codes: the codes, as for `Dequantised`.
        scales: the scales as floats, in their stored shape.
        codebook: the numbers of the codes; None if the codes are numbers.
        block: the (rows, columns) of a block from config.json; None if it states none.
        zeros: a zero point for each scale; None without zero points.
        block_of_column: the index of the block of each column; None for consecutive blocks.

    Raises:
        InputError: the shapes of the weight and its scales do not fit.
    """
    rows, columns, block_size = _grid(checkpoint, name, shape, scales, block)
    return Dequantised(
        name=name,
        dtype="F32",
        shape=shape,
        scheme=scheme,
        codes=codes,
        codebook=codebook,
        rows=rows,
        columns=columns,
        block=block_size,
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
        name: the plain name of the weight, for messages.
        shape: the shape of the decoded weight; matrices may be stacked along its first axes.
        scales: one number for the whole weight, for each matrix of a stack, for each row, or for
            each block.
        block: the (rows, columns) of a block from config.json; None to infer them.

    Raises:
        InputError: the shapes of the weight and its scales do not fit.
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
        grid_rows, grid_columns = scales.shape[-2:]
        exact_block = _exact(rows, grid_rows), _exact(columns, grid_columns)
        for block_size in (block,) if block else ((USUAL, USUAL), exact_block):
            if min(block_size) > 0 and (
                -(-rows // block_size[0]),
                -(-columns // block_size[1]),
            ) == (grid_rows, grid_columns):
                return rows, columns, block_size
    raise checkpoint.unfit(
        name,
        f"scales for a weight of shape {list(shape)}, for each row or block"
        + (f" of {block[0]} x {block[1]} (weight_block_size)" if block else " of it"),
        f"scales of shape {list(scales.shape)}",
    )


def _exact(length: int, blocks: int) -> int:
    """Return the length of each of `blocks` equal blocks; 0 if `length` is not their multiple."""
    return length // blocks if blocks and length % blocks == 0 else 0


def as_scales(checkpoint: Checkpoint, scales: Stored, *, transposed: bool = False) -> Tensor:
    """Return scales as a tensor of floats. Scales that are stored as exponents are decoded.

    Args:
        checkpoint: the model, for messages.
        scales: the scales as stored in the file.
        transposed: whether the stored scales are transposed.

    Raises:
        InputError: the dtype of the scales is not one of `READ_SCALES` or of exponents.
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
    """Return a contiguous tensor of packed numbers as a tensor of bytes with a shape."""
    return replace(tensor, dtype="U8", shape=shape)
