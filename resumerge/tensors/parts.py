"""Parts of a tensor that consists of parts of one shape, such as the matrices of experts."""

from __future__ import annotations

import math
from dataclasses import replace

from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.sliced import Sliced
from resumerge.tensors.stored import Stored
from resumerge.tensors.tensor import Tensor


def part_of(whole: Tensor, name: str, shape: tuple[int, ...], number: int) -> Tensor:
    """Return one part of a tensor that consists of consecutive parts of one shape.

    Args:
        whole: the tensor, whose elements are those of the parts, one part after the other.
        name: the name of the returned tensor.
        shape: the shape of every part.
        number: the part's number, from 0.
    """
    begin = number * math.prod(shape)
    if isinstance(whole, Stored) and whole.is_contiguous:
        offset = whole.offset + nbytes(whole.dtype, begin)
        return replace(whole, name=name, shape=shape, offset=offset)
    return Sliced(name, whole.dtype, shape, whole, begin)
