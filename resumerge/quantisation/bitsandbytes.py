"""bitsandbytes: NF4 or FP4 in blocks of consecutive elements, and integers of 8 bits.

    weight = codebook[number] * absmax                     4 bits, a block of 64 or more
    absmax = nested_codebook[number] * nested_absmax + nested_offset    if absmax is quantised
    weight = number * SCB / 127                            8 bits, a scale for each row

A byte contains two numbers of 4 bits, the first in the upper bits. ``quant_state`` is JSON in a
tensor. NF4 is defined in QLoRA, arXiv 2305.14314, appendix E. Source: bitsandbytes, functional.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from resumerge.quantisation.grids import as_bytes
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight
from resumerge.tensors import Dequantised, Stored, Tensor
from resumerge.tensors.quantised.codes import Codebook

STATE = ".quant_state.bitsandbytes__"

LARGEST_STATE = 1 << 16
"""The largest size of the JSON in a tensor, in bytes; usual is about a hundred."""

LARGEST_BLOCK = 4096
"""The largest block of bitsandbytes, in elements (functional.py, `quantize_4bit`)."""

MOST_DIMENSIONS, LARGEST_DIMENSION = 8, 1 << 48
"""The largest number of dimensions of a weight, and a bound on the elements along each."""

LARGEST = 3.4e38
"""A bound on the magnitude of a stored number, slightly below float32's largest number."""


class Bitsandbytes4(Scheme):
    """Weights in NF4 and FP4."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for kind in ("nf4", "fp4"):
            for name, state in checkpoint.ending(STATE + kind):
                yield _weight(checkpoint, name, state, kind)


class Bitsandbytes8(Scheme):
    """Weights of 8-bit integers with a scale for each row (LLM.int8)."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for stem, scales in checkpoint.ending(".SCB"):
            codes = checkpoint.need(f"{stem}.weight", scales.name)
            rows = codes.shape[0] if len(codes.shape) == 2 else 0
            if codes.dtype != "I8" or scales.dtype != "F32" or scales.numel != rows:
                raise checkpoint.unfit(
                    codes.name,
                    "a matrix of I8, and SCB with a number in F32 for each row",
                    f"{codes.dtype} {list(codes.shape)} and {scales.dtype} {list(scales.shape)}",
                )
            tensor = Dequantised(
                name=codes.name,
                dtype="F32",
                shape=codes.shape,
                scheme="bitsandbytes, 8 bits",
                codes=codes,
                codebook=None,
                rows=rows,
                columns=codes.shape[1],
                block=(1, codes.shape[1]),
                scales=scales,
                factor=1 / 127,
            )
            description_names = checkpoint.names(f"{stem}.weight_format")
            part_names = codes.name, scales.name
            yield Weight(
                codes.name, tensor, part_names, "bitsandbytes of 8 bits", description_names
            )


def _weight(checkpoint: Checkpoint, name: str, state: Stored, kind: str) -> Weight:
    packed_codes = checkpoint.need(name, state.name)
    absmax = checkpoint.need(f"{name}.absmax", state.name)
    codebook_tensor = checkpoint.need(f"{name}.quant_map", state.name)
    description = _State(checkpoint, state)
    shape, block = description.shape(), description.elements("blocksize")
    numel = math.prod(shape)
    block_count = -(-numel // block)
    if (
        packed_codes.dtype != "U8"
        or packed_codes.numel != -(-numel // 2)
        or not packed_codes.is_contiguous
    ):
        raise checkpoint.unfit(
            name, f"{-(-numel // 2)} bytes", f"{packed_codes.numel} {packed_codes.dtype}"
        )
    if absmax.numel != block_count:
        raise checkpoint.unfit(absmax.name, f"{block_count} numbers", f"{absmax.numel}")
    part_names = [packed_codes.name, absmax.name]
    description_names = [state.name, codebook_tensor.name]
    scales: Tensor = absmax
    if absmax.dtype == "U8":
        nested_absmax = checkpoint.need(f"{name}.nested_absmax", state.name)
        nested_codebook = checkpoint.need(f"{name}.nested_quant_map", state.name)
        nested_block = description.elements("nested_blocksize")
        if nested_absmax.numel != -(-block_count // nested_block):
            raise checkpoint.unfit(
                nested_absmax.name,
                f"{-(-block_count // nested_block)} numbers",
                f"{nested_absmax.numel}",
            )
        part_names.append(nested_absmax.name)
        description_names.append(nested_codebook.name)
        scales = Dequantised(
            name=absmax.name,
            dtype="F32",
            shape=absmax.shape,
            scheme="bitsandbytes, absmax",
            codes=absmax,
            codebook=_codebook(checkpoint, nested_codebook, "dynamic", 256),
            rows=-(-block_count // nested_block),
            columns=nested_block,
            block=(1, nested_block),
            scales=nested_absmax,
            added=description.float("nested_offset"),
        )
    elif absmax.dtype != "F32":
        raise checkpoint.unfit(absmax.name, "F32 or U8", absmax.dtype)
    tensor = Dequantised(
        name=name,
        dtype="F32",
        shape=shape,
        scheme=f"bitsandbytes, {kind}",
        codes=as_bytes(packed_codes, (packed_codes.numel,)),
        codebook=_codebook(checkpoint, codebook_tensor, kind, 16),
        rows=block_count,
        columns=block,
        block=(1, block),
        scales=scales,
    )
    kind_in_words = f"{kind.upper()} in blocks of {block}"
    return Weight(name, tensor, tuple(part_names), kind_in_words, tuple(description_names))


def _codebook(checkpoint: Checkpoint, stored: Stored, kind: str, size: int) -> Codebook:
    """Return the codebook that a tensor of the model contains.

    Raises:
        InputError: the tensor does not contain `size` finite numbers in F32.
    """
    if stored.dtype != "F32" or stored.numel != size:
        raise checkpoint.unfit(
            stored.name, f"{size} numbers in F32", f"{stored.numel} {stored.dtype}"
        )
    numbers = np.frombuffer(checkpoint.read(stored), np.float32)
    if not np.isfinite(numbers).all():
        raise checkpoint.unfit(stored.name, "finite numbers", "infinities or NaN")
    return Codebook(kind, tuple(numbers.tolist()), high_first=True)


class _State:
    """The description of a weight that is stored as JSON in a tensor.

    Every method raises `InputError` for a value that is missing or invalid.

    Args:
        checkpoint: the model, which reads the tensor.
        stored: the tensor with the JSON.
    """

    def __init__(self, checkpoint: Checkpoint, stored: Stored) -> None:
        self._checkpoint, self._stored = checkpoint, stored
        if stored.dtype != "U8" or stored.numel > LARGEST_STATE:
            raise checkpoint.unfit(
                stored.name, "a short JSON object in U8", f"{stored.nbytes} bytes"
            )
        try:
            description = json.loads(checkpoint.read(stored).decode())
        except (ValueError, RecursionError) as error:
            raise checkpoint.unfit(stored.name, "a JSON object", str(error)[:80]) from None
        if not isinstance(description, dict):
            raise checkpoint.unfit(stored.name, "a JSON object", type(description).__name__)
        self._said: Mapping[str, Any] = description

    def shape(self) -> tuple[int, ...]:
        """Return the shape of the weight: 1 to `MOST_DIMENSIONS` dimensions, none of them 0."""
        shape = self._said.get("shape")
        if (
            isinstance(shape, list)
            and 0 < len(shape) <= MOST_DIMENSIONS
            and all(type(n) is int and 0 < n < LARGEST_DIMENSION for n in shape)
        ):
            return tuple(shape)
        raise self._checkpoint.unfit(
            self._stored.name, "shape: a short list of whole numbers", str(shape)[:40]
        )

    def elements(self, key: str) -> int:
        """Return the number of elements of a block: from 1 to `LARGEST_BLOCK`."""
        element_count = self._said.get(key)
        if type(element_count) is int and 0 < element_count <= LARGEST_BLOCK:
            return element_count
        raise self._checkpoint.unfit(
            self._stored.name,
            f"{key}: a whole number from 1 to {LARGEST_BLOCK}",
            f"{element_count}"[:40],
        )

    def float(self, key: str) -> float:
        """Return a number whose magnitude is below `LARGEST`."""
        number = self._said.get(key)
        if isinstance(number, int | float) and -LARGEST < number < LARGEST:
            return float(number)
        raise self._checkpoint.unfit(self._stored.name, f"{key}: a number", f"{number}"[:40])
