"""GPTQ: integers of 4 or 8 bits, stored transposed and packed along the inputs of a weight.

    weight[output, input] = scales[g, output] * (number - zero),    g = g_idx[input]

The tensors are ``qweight`` (inputs * bits / 32, outputs), ``qzeros`` (groups, outputs * bits / 32),
``scales`` (groups, outputs) and ``g_idx`` (inputs). Files in the first format (checkpoint_format
``gptq``, the usual one) store each zero point minus one. Source: AutoGPTQ and GPTQModel,
nn_modules/qlinear.
"""

from __future__ import annotations

from collections.abc import Iterator

from resumerge.quantisation.grids import as_scales
from resumerge.quantisation.pack_quantized import WORD, as_numbers
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight
from resumerge.tensors import Dequantised, Repacked, Stored

EXACT_ZEROS = "gptq_v2"
"""The checkpoint_format that stores zero points without a change."""


class Gptq(Scheme):
    """Weights in the format of AutoGPTQ and GPTQModel."""

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for stem, packed_weight in checkpoint.ending(".qweight"):
            yield _weight(checkpoint, stem, packed_weight)


def _weight(checkpoint: Checkpoint, stem: str, packed: Stored) -> Weight:
    zeros = checkpoint.need(f"{stem}.qzeros", packed.name)
    scales = checkpoint.need(f"{stem}.scales", packed.name)
    order = checkpoint.find(f"{stem}.g_idx")
    groups, outputs = scales.shape if len(scales.shape) == 2 else (0, 0)
    bits = WORD * zeros.shape[1] // outputs if outputs and len(zeros.shape) == 2 else 0
    numbers_per_word = WORD // bits if bits in (4, 8) else 1
    inputs = packed.shape[0] * numbers_per_word if packed.shape else 0
    has_fitting_shapes = (
        bits in (4, 8)
        and groups > 0
        and packed.dtype == zeros.dtype == "I32"
        and packed.shape == (inputs // numbers_per_word, outputs)
        and zeros.shape == (groups, outputs // numbers_per_word)
        and packed.is_contiguous
        and (order is None or (order.dtype == "I32" and order.shape == (inputs,)))
    )
    if not has_fitting_shapes or (order is None and inputs % groups):
        raise checkpoint.unfit(
            stem,
            "qweight (inputs * bits / 32, outputs), qzeros (groups, outputs * bits / 32), scales "
            "(groups, outputs) and g_idx (inputs), of 4 or 8 bits",
            ", ".join(f"{t.dtype} {list(t.shape)}" for t in (packed, zeros, scales)),
        )
    stated_format = checkpoint.stated.get("checkpoint_format", "gptq")
    numbers = Repacked.of(packed, outputs, inputs, bits=bits, along=0, transposed=True)
    zero_offset = 0 if stated_format == EXACT_ZEROS else 1
    zero_points = Repacked.of(
        zeros, outputs, groups, bits=bits, along=1, transposed=True, added=zero_offset
    )
    tensor = transposed(checkpoint, f"{stem}.weight", "GPTQ", numbers, zero_points, scales, order)
    stored_tensors = (packed, zeros, scales, *((order,) if order else ()))
    kind = f"GPTQ of {bits} bits"
    return Weight(
        tensor.name, tensor, tuple(stored_tensor.name for stored_tensor in stored_tensors), kind
    )


def transposed(
    checkpoint: Checkpoint,
    name: str,
    scheme: str,
    numbers: Repacked,
    zeros: Repacked,
    scales: Stored,
    order: Stored | None = None,
) -> Dequantised:
    """Return a weight (outputs, inputs) whose scales are stored as (groups, outputs).

    Args:
        checkpoint: the model, for messages.
        name: the plain name of the weight, which ends with ``.weight``.
        scheme: the name of the quantisation.
        numbers: the integers: (outputs, inputs).
        zeros: the zero points: (outputs, groups).
        scales: the scales: (groups, outputs), contiguous.
        order: the group of each input; None for consecutive groups of one size.
    """
    outputs, inputs = numbers.shape[0], numbers.columns
    groups = scales.shape[0]
    group_size = -(-inputs // groups)
    return Dequantised(
        name=name,
        dtype="F32",
        shape=(outputs, inputs),
        scheme=scheme,
        codes=numbers,
        codebook=numbers.codebook(),
        rows=outputs,
        columns=inputs,
        block=(1, group_size),
        scales=as_scales(checkpoint, scales, transposed=True),
        zeros=as_numbers(zeros),
        block_of_column=order,
    )
