"""Vectors as tensors of torch, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from resumerge.native import BF16, CODES, F16, F32, Vector
from resumerge.native._kernels import F8_E4M3, F8_E5M2, F64

TORCH: dict[int, torch.dtype] = {code: getattr(torch, name) for name, code in CODES.items()}
"""The dtypes of torch by the codes of element types."""

NAN = {F32: math.nan, F64: math.nan, BF16: 0x7FC0, F16: 0x7E00, F8_E4M3: 0x7F, F8_E5M2: 0x7F}
"""The NaN that is written, as a number of the arrays of each type."""

_HIGHEST = torch.finfo(torch.float8_e4m3fn).max


def tensor_of(vector: Vector) -> Tensor:
    """Return the numbers of a vector, less those of its base, as a float32 copy."""
    wide = torch.from_numpy(vector.data.copy()).view(TORCH[vector.dtype]).float()
    return wide if vector.base is None else wide - tensor_of(vector.base)


def tensors_of(vectors: list[Vector]) -> list[Tensor]:
    return [tensor_of(vector) for vector in vectors]


def write(found: Tensor, out: Vector) -> None:
    """Round as torch does, with one NaN for all; without infinities, to the highest number."""
    dtype = TORCH[out.dtype]
    if dtype == torch.float8_e4m3fn:  # torch 2.12 and before make NaN of what is too large
        found = found.clamp(-_HIGHEST, _HIGHEST)
    to = torch.from_numpy(out.data)
    to.copy_(found.to(dtype).view(to.dtype))
    out.data[found.isnan().numpy()] = NAN[out.dtype]


def parts(length: int, block: int) -> Iterator[slice]:
    """Yield the elements of each block; the last one may be shorter."""
    for start in range(0, length, block):
        yield slice(start, min(start + block, length))


def masked(values: Tensor, mask: np.ndarray | None) -> Tensor:
    """Return the values, with 0 where a mask is 0, also for NaN."""
    return values if mask is None else torch.where(torch.from_numpy(mask) != 0, values, 0.0)


def added(terms: list[Tensor]) -> Tensor:
    """Return the sum, added in the order of the terms."""
    total = terms[0].clone()
    for term in terms[1:]:
        total += term
    return total


def scaled(terms: list[Tensor], weights: Iterable[float]) -> list[Tensor]:
    """Return each term times its weight, a number of Python: torch rounds it to float32."""
    return [term * float(weight) for term, weight in zip(terms, weights)]
