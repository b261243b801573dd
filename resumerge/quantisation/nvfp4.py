"""NVFP4: FP4 (E2M1) in groups of 16, each with a scale in float8, and one scale for the weight.

    weight = number * (scale / global_scale)      compressed-tensors (nvfp4-pack-quantized)
    weight = number * (scale * scale_2)           modelopt

A byte contains two numbers, the first in the lower 4 bits. Sources: compressed-tensors,
compressors/nvfp4; NVIDIA modelopt, quantization/qtensor/nvfp4_tensor.py.

Outputs have the form of compressed-tensors: ``global_scale = 448 * 6 / largest magnitude`` of the
weight, and ``scale = global_scale * (largest magnitude / 6)`` of the group
(quantization/utils/helpers.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from resumerge.kernels.quantised import Code
from resumerge.quantisation.grids import as_bytes, scaled_weight
from resumerge.quantisation.output import (
    BY_COMPRESSED_TENSORS,
    Layout,
    OutputScheme,
    of_compressed_tensors,
)
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight
from resumerge.tensors import Dequantised, Stored
from resumerge.tensors.quantised.codes import E2M1
from resumerge.tensors.quantised.form import Form

GROUP = 16
"""The number of elements that share a scale."""

_GROUPS = {
    "num_bits": 4,
    "type": "float",
    "strategy": "tensor_group",
    "group_size": GROUP,
    "scale_dtype": "torch.float8_e4m3fn",
    "zp_dtype": "torch.float8_e4m3fn",
}

NVFP4 = OutputScheme(
    name="nvfp4",
    kind=f"NVFP4 in groups of {GROUP}",
    layout=Layout(
        form=Form("nvfp4", Code.E2M1, 6.0, "F8_E4M3", 448.0 * 6.0),
        block=(1, GROUP),
        codes="weight_packed",
        scales="weight_scale",
        dtype="U8",
        factor="weight_global_scale",
    ),
    config=of_compressed_tensors("nvfp4-pack-quantized", _GROUPS),
    loaders=BY_COMPRESSED_TENSORS,
)


class Nvfp4(Scheme):
    """Weights in FP4, with a float8 scale for each group and a float32 scale for the weight."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for stem, global_scale in checkpoint.ending(".weight_global_scale"):
            if packed_weight := checkpoint.find(f"{stem}.weight_packed"):
                yield _weight(checkpoint, stem, packed_weight, global_scale, divides=True)
        for stem, global_scale in checkpoint.ending(".weight_scale_2"):
            if packed_weight := checkpoint.find(f"{stem}.weight"):
                yield _weight(checkpoint, stem, packed_weight, global_scale, divides=False)


def _weight(
    checkpoint: Checkpoint, stem: str, packed: Stored, whole: Stored, *, divides: bool
) -> Weight:
    scales = checkpoint.need(f"{stem}.weight_scale", packed.name)
    if packed.dtype != "U8" or not packed.shape or not packed.is_contiguous:
        raise checkpoint.unfit(packed.name, "bytes (U8) with two numbers each", packed.dtype)
    if scales.dtype != "F8_E4M3" or whole.numel != 1:
        raise checkpoint.unfit(
            scales.name,
            f"scales in F8_E4M3, and one number {whole.name}",
            f"{scales.dtype}, and {whole.numel} numbers",
        )
    shape = (*packed.shape[:-1], 2 * packed.shape[-1])
    if scales.shape != (*shape[:-1], -(-shape[-1] // GROUP)):
        raise checkpoint.unfit(
            scales.name,
            f"a scale for each {GROUP} numbers of {list(shape)}",
            f"{list(scales.shape)}",
        )
    group_scales = Dequantised.elementwise(
        scales, scales.shape, "scales of NVFP4", scale=whole, divides=divides
    )
    codes, name = as_bytes(packed, packed.shape), f"{stem}.weight"
    tensor = scaled_weight(checkpoint, name, "NVFP4", shape, codes, group_scales, codebook=E2M1)
    return Weight(
        name,
        tensor,
        (packed.name, scales.name, whole.name),
        f"NVFP4 in groups of {tensor.block[1]}",
        checkpoint.names(f"{stem}.weight_shape"),
        NVFP4.layout if divides and shape[-1] % GROUP == 0 and len(shape) == 2 else None,
    )
