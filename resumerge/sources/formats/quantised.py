"""The detection of quantised checkpoints, whose stored numbers are not the weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.errors import refuse
from resumerge.sources.types import Source

_SIGNS: dict[str, re.Pattern[str]] = {
    "bitsandbytes, 4 bits": re.compile(r"\.weight\.(absmax|quant_map|quant_state\..+)"),
    "bitsandbytes, 8 bits": re.compile(r"\.(SCB|weight_format)"),
    "GPTQ or AWQ": re.compile(r"\.(qweight|qzeros)"),
    "float8 with a scale for each block": re.compile(r"\.weight_scale_inv"),
    "float8 or whole numbers with scales": re.compile(r"\.(weight_scale|weight_zero_point)"),
    "compressed-tensors": re.compile(r"\.weight_packed"),
    "HQQ": re.compile(r"\.W_q"),
    "AQLM": re.compile(r"\.codebooks"),
    "EETQ": re.compile(r"\.weight_scales"),
    "MXFP4": re.compile(r"_proj_(blocks|scales)"),
}
"""The endings of names of tensors that a quantisation adds, or puts in place of a model's own."""

_PACKED = frozenset({"U8", "I8", "I32", "F4", "F6_E2M3", "F6_E3M2"})
"""The dtypes that only packed weight matrices have."""

_STATED = ("quantization_config", "compression_config")
"""The keys of config.json that say how weights are quantised."""


def check_unquantised(source: Source) -> None:
    """Refuse a model whose tensors must be unpacked or scaled to get its weights.

    Plain float8 tensors are weights. config.json does not decide: it often names a quantisation
    that the model was trained with, and saved without.

    Raises:
        InputError: the model is quantised; the error names the quantisation.
    """
    found = _format(source)
    if found is None:
        return
    name, tensor = found
    config = source.config.get("quantization_config")
    method = config.get("quant_method") if isinstance(config, dict) else None
    raise refuse(
        "The model is quantised, and quantised weights cannot be merged",
        where=source.ref.text,
        expected="weights in float32, bfloat16, float16 or plain float8",
        found=f"{name}: tensor {tensor!r}"
        + (f"; config.json says quant_method: {str(method)[:40]}" if method else ""),
        fix="name the original model, or load this one with transformers, call dequantize() and "
        "save_pretrained(), and name the folder",
    )


def _format(source: Source) -> tuple[str, str] | None:
    """Return the quantisation of a model, and a tensor that shows it; None for a plain model."""
    for tensor, info in source.tensors.items():
        for name, sign in _SIGNS.items():
            ending = sign.search(tensor)
            if ending and ending.end() == len(tensor):
                return name, tensor
        if tensor.endswith(".weight") and len(info.shape) > 1 and info.dtype in _PACKED:
            return f"weights packed into {info.dtype}", tensor
    return None


def stated_quantisations(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of every quantisation that a (nested) config.json states."""
    for key, value in config.items():
        if key in _STATED and value:
            method = value.get("quant_method") if isinstance(value, Mapping) else None
            yield str(method or key)[:40]
        elif isinstance(value, Mapping):
            yield from stated_quantisations(value)


def unquantised_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json that states no quantisation, also not in its nested configs."""
    return {
        key: unquantised_config(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if not (key in _STATED and value)
    }
