"""MXFP4: FP4 (E2M1) in groups of 32, each with a power of two as its scale.

    weight = number * 2^(scale - 127)

A byte contains two numbers, the first in the lower 4 bits. gpt-oss stores the experts of a layer as
``NAME_blocks`` (experts, outputs, groups, 16) and ``NAME_scales`` (experts, outputs, groups); the
weight NAME has the shape (experts, inputs, outputs). compressed-tensors (mxfp4-pack-quantized)
stores plain matrices, as do models whose I8 weights have scales in F8_E8M0. Sources: OCP
Microscaling Formats v1.0; transformers, integrations/mxfp4.py.

Outputs have the matrices of compressed-tensors. The scale is the power of two of the largest
magnitude, rounded, divided by 4 (quantization/utils/mxfp_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from resumerge.kernels.quantised import Code
from resumerge.quantisation.grids import as_bytes, as_scales, scaled_weight
from resumerge.quantisation.output import (
    BY_COMPRESSED_TENSORS,
    Layout,
    OutputScheme,
    of_compressed_tensors,
    stem_of,
)
from resumerge.quantisation.scaled import find_scales
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight
from resumerge.tensors import Dequantised, Repacked, Stacked, Stored
from resumerge.tensors.quantised.codes import E2M1, Codebook
from resumerge.tensors.quantised.form import Form

OF_BYTES = Codebook("e2m1 of a byte", tuple(E2M1.numbers[code & 15] for code in range(256)))
"""The numbers of codes that are stored in a byte each."""

GROUP = 32
"""The number of elements that share a scale."""

EXPONENTS = frozenset({"U8", "F8_E8M0"})
"""The dtypes of scales that are stored as exponents of two."""

_GROUPS = {
    "num_bits": 4,
    "type": "float",
    "strategy": "group",
    "group_size": GROUP,
    "scale_dtype": "torch.uint8",
    "zp_dtype": "torch.uint8",
}

MXFP4 = OutputScheme(
    name="mxfp4",
    kind=f"MXFP4 in groups of {GROUP}",
    layout=Layout(
        form=Form("mxfp4", Code.E2M1, 6.0, "U8"),
        block=(1, GROUP),
        codes="weight_packed",
        scales="weight_scale",
        dtype="U8",
    ),
    config=of_compressed_tensors("mxfp4-pack-quantized", _GROUPS),
    loaders=BY_COMPRESSED_TENSORS,
)


class Mxfp4(Scheme):
    """Matrices in MXFP4."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for stem, packed_weight in checkpoint.ending(".weight_packed"):
            scales = checkpoint.find(f"{stem}.weight_scale")
            if packed_weight.dtype == "U8" and scales is not None and scales.dtype in EXPONENTS:
                yield from _matrix(checkpoint, f"{stem}.weight", packed_weight, scales)
        for name, byte_codes in checkpoint.of_types({"I8"}):
            exponents = find_scales(checkpoint, name)
            if exponents is not None and exponents.dtype == "F8_E8M0":
                yield from _matrix(checkpoint, name, byte_codes, exponents)


def _matrix(checkpoint: Checkpoint, name: str, packed: Stored, scales: Stored) -> Iterator[Weight]:
    """Yield the weight of packed numbers, if each group of 32 numbers has a scale."""
    if not packed.shape or not packed.is_contiguous:
        return
    shape = (*packed.shape[:-1], 2 * packed.shape[-1])
    if scales.shape != (*shape[:-1], shape[-1] // GROUP) or shape[-1] % GROUP:
        return
    codes, floats = as_bytes(packed, packed.shape), as_scales(checkpoint, scales)
    tensor = scaled_weight(checkpoint, name, "MXFP4", shape, codes, floats, codebook=E2M1)
    description_names = checkpoint.names(f"{name}_shape")
    kind = f"MXFP4 in groups of {GROUP}"
    stem = stem_of(name)
    layout = replace(
        MXFP4.layout,
        codes=packed.name.removeprefix(stem),
        scales=scales.name.removeprefix(stem),
        dtype=packed.dtype,
    )
    yield Weight(name, tensor, (packed.name, scales.name), kind, description_names, layout)


class GptOss(Scheme):
    """Experts in MXFP4 in the form of gpt-oss, which stores each expert's matrix transposed."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for name, blocks in checkpoint.ending("_blocks"):
            scales = checkpoint.find(f"{name}_scales")
            if scales is None or blocks.dtype != "U8":
                continue
            has_fitting_shapes = (
                len(blocks.shape) == 4
                and blocks.shape == (*scales.shape, GROUP // 2)
                and scales.dtype in EXPONENTS
                and blocks.is_contiguous
                and scales.is_contiguous
            )
            if not has_fitting_shapes:
                raise checkpoint.unfit(
                    name,
                    f"{name}_blocks (experts, outputs, groups, {GROUP // 2}), and {name}_scales "
                    "with a number for each group",
                    f"shapes {list(blocks.shape)} and {list(scales.shape)}",
                )
            experts, outputs, groups, _ = blocks.shape
            inputs = groups * GROUP
            expert_matrices = (
                _expert(checkpoint, name, number, blocks, scales) for number in range(experts)
            )
            tensor = Stacked.of(name, (experts, inputs, outputs), tuple(expert_matrices))
            kind = f"MXFP4 in groups of {GROUP}"
            yield Weight(name, tensor, (blocks.name, scales.name), kind)


def _expert(
    checkpoint: Checkpoint, name: str, number: int, blocks: Stored, scales: Stored
) -> Dequantised:
    """Return the matrix of an expert, with the shape (inputs, outputs)."""
    _, outputs, groups, width = blocks.shape
    inputs = groups * GROUP
    packed_matrix = replace(
        blocks,
        shape=(outputs, groups * width),
        offset=blocks.offset + number * outputs * groups * width,
    )
    codes = Repacked.of(packed_matrix, inputs, outputs, bits=4, along=1, transposed=True)
    expert_scales = replace(
        scales,
        shape=(outputs, groups),
        offset=scales.offset + number * outputs * groups,
    )
    return Dequantised(
        name=name,
        dtype="F32",
        shape=(inputs, outputs),
        scheme="MXFP4",
        codes=codes,
        codebook=E2M1 if outputs % 2 == 0 else OF_BYTES,
        rows=inputs,
        columns=outputs,
        block=(GROUP, 1),
        scales=as_scales(checkpoint, expert_scales, transposed=True),
    )
