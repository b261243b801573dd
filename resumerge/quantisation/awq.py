"""AWQ: integers of 4 bits, stored transposed and packed along the outputs of a weight.

    weight[output, input] = scales[g, output] * (number - zero),    g = input // group

The tensors are ``qweight`` (inputs, outputs / 8), ``qzeros`` (groups, outputs / 8) and ``scales``
(groups, outputs). The 8 numbers of a word are stored in the order 0, 2, 4, 6, 1, 3, 5, 7. Source:
AutoAWQ, modules/linear/gemm.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from resumerge.quantisation.gptq import transposed
from resumerge.quantisation.pack_quantized import WORD
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight
from resumerge.tensors import Repacked, Stored

BITS = 4

PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""The place of each of 8 numbers in a word; place 0 has the lowest bits."""


class Awq(Scheme):
    """Weights in the GEMM format of AutoAWQ."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for stem, packed_weight in checkpoint.ending(".qweight"):
            zeros = checkpoint.find(f"{stem}.qzeros")
            scales = checkpoint.find(f"{stem}.scales")
            if (
                zeros is None
                or scales is None
                or not _is_awq(checkpoint, packed_weight, zeros, scales)
            ):
                continue
            numbers = _numbers(packed_weight, scales.shape[1])
            zero_points = _numbers(zeros, scales.shape[1])
            name = f"{stem}.weight"
            tensor = transposed(checkpoint, name, "AWQ", numbers, zero_points, scales)
            yield Weight(
                name, tensor, (packed_weight.name, zeros.name, scales.name), "AWQ of 4 bits"
            )


def _is_awq(checkpoint: Checkpoint, packed: Stored, zeros: Stored, scales: Stored) -> bool:
    if any(len(tensor.shape) != 2 or not tensor.is_contiguous for tensor in (packed, scales)):
        return False
    groups, outputs = scales.shape
    has_fitting_shapes = (
        packed.dtype == zeros.dtype == "I32"
        and packed.shape[1] * WORD // BITS == outputs
        and groups > 0
        and packed.shape[0] % groups == 0
        and zeros.shape == (groups, packed.shape[1])
    )
    version = str(checkpoint.stated.get("version", "gemm")).lower()
    if has_fitting_shapes and version != "gemm":
        raise checkpoint.unfit(packed.name, "AWQ in the format gemm", f"version: {version[:20]}")
    return has_fitting_shapes


def _numbers(packed: Stored, outputs: int) -> Repacked:
    return Repacked.of(
        packed, outputs, packed.shape[0], bits=BITS, along=1, order=PLACES, transposed=True
    )
