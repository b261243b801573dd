"""Quantised checkpoints: how the tensors of a quantised weight are recognised and decoded.

There is one short file for each scheme. A scheme recognises its weights by the names, dtypes and
shapes of tensors. If these are not enough, it also reads quantization_config. For each weight, it
returns an expression that decodes the weight (`tensors/quantised/`), under the weight's plain name.
`scheme.py` defines the arguments and results of a scheme, and `grids.py` makes the expression of a
weight with one scale for each block. Code that opens a model calls `dequantised_weights`. Some
schemes can be written, too; `output.py` describes them. `gguf_blocks.py` decodes and encodes the
blocks of llama.cpp, for `sources/gguf/` and `output/gguf/`.
"""

from __future__ import annotations

from collections.abc import Iterator

from resumerge.quantisation.awq import Awq
from resumerge.quantisation.bitsandbytes import Bitsandbytes4, Bitsandbytes8
from resumerge.quantisation.gptq import Gptq
from resumerge.quantisation.mxfp4 import MXFP4, GptOss, Mxfp4
from resumerge.quantisation.nvfp4 import NVFP4, Nvfp4
from resumerge.quantisation.output import OutputScheme
from resumerge.quantisation.pack_quantized import INT4, PackQuantized
from resumerge.quantisation.scaled import FP8_BLOCK, FP8_CHANNEL, Scaled
from resumerge.quantisation.scheme import Checkpoint, Scheme, Weight

__all__ = [
    "OUTPUTS",
    "QUANTISATIONS",
    "Checkpoint",
    "OutputScheme",
    "Weight",
    "dequantised_weights",
]

QUANTISATIONS: tuple[Scheme, ...] = (
    Bitsandbytes4(),
    Bitsandbytes8(),
    Nvfp4(),
    Mxfp4(),
    GptOss(),
    PackQuantized(),
    Awq(),
    Gptq(),
    Scaled(),
)
"""The schemes that are read, in order; a tensor of one scheme is hidden from later schemes."""

OUTPUTS = {scheme.name: scheme for scheme in (FP8_BLOCK, FP8_CHANNEL, INT4, MXFP4, NVFP4)}
"""The schemes that can be written, by the value of the recipe's ``out_dtype``."""


def dequantised_weights(checkpoint: Checkpoint) -> Iterator[Weight]:
    """Yield the quantised weights of a model, scheme after scheme.

    Raises:
        InputError: the tensors of a weight do not fit together.
    """
    for scheme in QUANTISATIONS:
        weights = list(scheme.weights(checkpoint))
        yield from weights
        used_names = {name for weight in weights for name in (*weight.parts, *weight.unused)}
        checkpoint = checkpoint.without(used_names)
