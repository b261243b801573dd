"""The settings of scaled positions in config.json. GGUF stores some of them as tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from resumerge.errors import refuse
from resumerge.sources.gguf.metadata import Metadata, shortest
from resumerge.tensors import Stored, Tensor

OF_LLAMA = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
TENSORS = (OF_LLAMA, LONG, SHORT)
"""The names of tensors that hold factors of frequencies instead of weights."""

MOST = 1 << 14
"""The most factors. A head of 512 elements has 256."""

ORIGINAL = 8192
"""The number of positions that Llama 3 was trained with before its frequencies were scaled."""

Read = Callable[[Stored], bytes]


def scaled_positions(
    metadata: Metadata, tensors: Mapping[str, Tensor], read: Read, head: int, theta: float
) -> dict[str, Any]:
    """Return the keys of config.json on scaled positions; empty if they are not scaled.

    Args:
        metadata: the metadata, in which the keys of ``rope.scaling`` may be missing.
        tensors: the tensors of the file, by their names in the file.
        read: returns the bytes of a small tensor.
        head: the number of elements of a head that are rotated.
        theta: the base of the frequencies.

    Raises:
        InputError: the positions are scaled in a way that config.json cannot state.
    """
    scaling_type = metadata.of_model("rope.scaling.type")
    factor = metadata.number("rope.scaling.factor")
    original_length = metadata.size("rope.scaling.original_context_length")
    if OF_LLAMA in tensors:
        factors = _factors(metadata, tensors[OF_LLAMA], read)
        return {"rope_scaling": _of_llama(metadata, factors, head, theta)}
    if LONG in tensors and SHORT in tensors:
        long_factors, short_factors = (
            _factors(metadata, tensors[name], read) for name in (LONG, SHORT)
        )
        return {
            "original_max_position_embeddings": original_length
            or metadata.needed("rope.scaling.original_context_length"),
            "rope_scaling": {
                "rope_type": "longrope",
                "long_factor": [
                    shortest(factor_of_frequency) for factor_of_frequency in long_factors.tolist()
                ],
                "short_factor": [
                    shortest(factor_of_frequency) for factor_of_frequency in short_factors.tolist()
                ],
            },
        }
    if scaling_type in (None, "none") or (scaling_type == "linear" and factor in (None, 1.0)):
        return {}
    if scaling_type == "linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    if scaling_type == "yarn" and factor is not None and original_length is not None:
        return {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original_length,
            }
        }
    raise _unknown(metadata, f"rope.scaling.type {str(scaling_type)[:40]!r}")


def _of_llama(metadata: Metadata, factors: np.ndarray, head: int, theta: float) -> dict[str, Any]:
    """Return the rope_scaling of Llama 3 that results in these factors.

    Frequencies whose wavelength exceeds the original context are divided by a factor. Frequencies
    whose wavelength is below a quarter of the context are unchanged. Between the two, the divisor
    is interpolated. Source: transformers, modeling_rope_utils.py.

    Raises:
        InputError: no settings of Llama 3 result in these factors.
    """
    factor, low_factor, high_factor = float(factors.max(initial=1.0)), 1.0, 4.0
    wavelengths = 2 * math.pi * theta ** (np.arange(0, head, 2, dtype=np.float64) / head)
    unscaled_part = np.clip(
        (ORIGINAL / wavelengths - low_factor) / (high_factor - low_factor), 0.0, 1.0
    )
    expected_factors = 1 / ((1 - unscaled_part) / factor + unscaled_part)
    if len(factors) != len(expected_factors) or not np.allclose(
        factors, expected_factors, rtol=1e-3
    ):
        raise _unknown(metadata, f"{OF_LLAMA}, which are not those of Llama 3")
    return {
        "rope_type": "llama3",
        "factor": float(f"{factor:.6g}"),
        "low_freq_factor": low_factor,
        "high_freq_factor": high_factor,
        "original_max_position_embeddings": ORIGINAL,
    }


def _factors(metadata: Metadata, tensor: Tensor, read: Read) -> np.ndarray:
    if not isinstance(tensor, Stored) or tensor.dtype != "F32" or not 0 < tensor.numel <= MOST:
        raise metadata.bad(tensor.name, f"1 to {MOST} numbers in F32", list(tensor.shape))
    factors = np.frombuffer(read(tensor), np.float32)
    if not np.isfinite(factors).all() or factors.min() <= 0:
        raise metadata.bad(tensor.name, "numbers above 0", float(factors.min()))
    return factors


def _unknown(metadata: Metadata, found: str) -> Exception:
    return refuse(
        "The positions of a model in GGUF are scaled in a way that is not read",
        where=metadata.model,
        expected="linear, yarn, the factors of Llama 3 or of Phi 3",
        found=found,
        fix="copy the config.json of the original model into the folder of the file",
    )
