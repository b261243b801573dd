"""Numbers in float8, or integers of 8 bits, that are multiplied by scales.

    weight = scale * (number - zero)

There is a scale for the whole weight, each row, each matrix of a stack of experts, each group of a
row, or each block of 128 x 128. transformers (fp8: DeepSeek-V3, Qwen3; fbgemm_fp8),
compressed-tensors (float-quantized, int-quantized, naive-quantized) and modelopt write such
weights. DeepSeek names the scale ``weight_scale_inv``, or ``scale``; both are factors, too
(https://huggingface.co/deepseek-ai/DeepSeek-V3, inference/kernel.py, `weight_dequant_kernel`).

Outputs have float8 numbers (E4M3) with a scale for each block of 128 x 128, or for each row:
``scale = largest magnitude / 448``. Sources: transformers, integrations/finegrained_fp8.py;
compressed-tensors, quantization/utils/helpers.py, `calculate_qparams`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from resumerge.kernels.quantised import Code
from resumerge.quantisation.grids import as_scales, scaled_weight
from resumerge.quantisation.output import (
    BY_COMPRESSED_TENSORS,
    WRITTEN_SCALES,
    Layout,
    OutputScheme,
    of_compressed_tensors,
    stem_of,
)
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight
from resumerge.tensors import Dequantised, Stored
from resumerge.tensors.quantised.form import Form

CODES = {"F8_E4M3": "float8 (E4M3)", "F8_E5M2": "float8 (E5M2)", "I8": "whole numbers of 8 bits"}

LARGEST = 448.0
"""The largest number of E4M3."""


def _fine_grained(plain: Sequence[str]) -> dict[str, Any]:
    """Return the quantization_config of transformers' `FineGrainedFP8Config`."""
    return {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": list(plain),
    }


FP8_BLOCK = OutputScheme(
    name="fp8_block",
    kind="float8 (E4M3) with a scale for each block of 128 x 128",
    layout=Layout(
        form=Form("fp8_block", Code.E4M3, LARGEST, "F32"),
        block=(128, 128),
        codes="weight",
        scales="weight_scale_inv",
        dtype="F8_E4M3",
    ),
    config=_fine_grained,
    loaders="transformers loads it with the package accelerate, and computes in float8 on GPUs "
    "that have it (compute capability 8.9), elsewhere in bfloat16; vLLM loads it as it is",
)

_CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel"}
_TOKEN = {
    "num_bits": 8,
    "type": "float",
    "strategy": "token",
    "symmetric": True,
    "dynamic": True,
}

FP8_CHANNEL = OutputScheme(
    name="fp8_channel",
    kind="float8 (E4M3) with a scale for each row",
    layout=Layout(
        form=Form("fp8_channel", Code.E4M3, LARGEST, "BF16"),
        block=(1, 0),
        codes="weight",
        scales="weight_scale",
        dtype="F8_E4M3",
    ),
    config=of_compressed_tensors("float-quantized", _CHANNEL, _TOKEN),
    loaders=BY_COMPRESSED_TENSORS,
)


class Scaled(Scheme):
    """Weights of 8-bit numbers with scales."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for name, codes in checkpoint.of_types(CODES):
            scales = find_scales(checkpoint, name)
            if scales is not None:
                yield _weight(checkpoint, name, codes, scales)


def find_scales(checkpoint: Checkpoint, name: str) -> Stored | None:
    """Return the tensor with the scales of a tensor of codes; None if there is no such tensor."""
    stem = name.removesuffix(".weight")
    names = [f"{name}_scale_inv", f"{name}_scale"] + [f"{stem}.scale"] * (stem != name)
    return next(
        (scales for candidate in names if (scales := checkpoint.find(candidate)) is not None), None
    )


def _weight(checkpoint: Checkpoint, name: str, codes: Stored, scales: Stored) -> Weight:
    zeros = checkpoint.find(f"{name}_zero_point")
    if zeros is not None and zeros.numel != scales.numel:
        raise checkpoint.unfit(
            zeros.name, f"a zero point for each of {scales.numel} scales", f"{zeros.numel}"
        )
    tensor = scaled_weight(
        checkpoint,
        name,
        "scaled",
        codes.shape,
        codes,
        as_scales(checkpoint, scales),
        block=_stated_block(checkpoint, name),
        zeros=None if zeros is None else as_floats(checkpoint, zeros),
    )
    return Weight(
        name,
        tensor,
        (codes.name, scales.name, *((zeros.name,) if zeros else ())),
        f"{CODES[codes.dtype]} with {_scales(scales.numel, tensor.columns, tensor.block)}",
        written=None if zeros else _written(codes, scales, tensor),
    )


def _stated_block(checkpoint: Checkpoint, name: str) -> tuple[int, int] | None:
    """Return the (rows, columns) of a block from config.json; None if it states no block.

    Raises:
        InputError: the value in config.json is not two whole numbers above 0.
    """
    match checkpoint.stated.get("weight_block_size"):
        case None:
            return None
        case [rows, columns] if all(type(n) is int and n > 0 for n in (rows, columns)):
            return rows, columns
        case stated:
            raise checkpoint.unfit(
                name,
                "rows and columns of a block as weight_block_size in config.json, like [128, 128]",
                repr(stated)[:100],
            )


def _written(codes: Stored, scales: Stored, tensor: Dequantised) -> Layout | None:
    """Return the layout in which a changed weight is written; None if it cannot be written.

    Only matrices in E4M3 can be written, and stacks whose matrices are whole blocks, with scales of
    `WRITTEN_SCALES`.
    """
    cuts_matrices = (
        len(codes.shape) > 2 and tensor.rows % tensor.block[0] and tensor.rows != tensor.block[0]
    )
    if (
        codes.dtype != "F8_E4M3"
        or scales.dtype not in WRITTEN_SCALES
        or len(codes.shape) < 2
        or cuts_matrices
    ):
        return None
    stem = stem_of(codes.name)
    return Layout(
        form=Form("float8", Code.E4M3, LARGEST, scales.dtype),
        block=tensor.block,
        codes=codes.name.removeprefix(stem),
        scales=scales.name.removeprefix(stem),
        dtype=codes.dtype,
    )


def as_floats(checkpoint: Checkpoint, zeros: Stored) -> Dequantised:
    """Return zero points as float32.

    Raises:
        InputError: the zero points are neither float8 nor integers of 8 bits.
    """
    if zeros.dtype not in CODES:
        raise checkpoint.unfit(zeros.name, f"zero points in {', '.join(CODES)}", zeros.dtype)
    return Dequantised.elementwise(zeros, zeros.shape, "zero points")


def _scales(count: int, columns: int, block: tuple[int, int]) -> str:
    """Return a description of the scales of a weight, for messages."""
    if count == 1:
        return "one scale"
    if block[1] < columns:
        return f"a scale for each block of {block[0]} x {block[1]}"
    return "a scale for each " + ("row" if block[0] == 1 else "matrix")
