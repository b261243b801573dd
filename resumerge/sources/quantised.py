"""Quantised checkpoints: read under the plain names of their weights, or refused by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from resumerge.errors import refuse
from resumerge.quantisation import Checkpoint, dequantised_weights
from resumerge.quantisation.scheme import STATED, USUAL_DTYPE, stated_dtype
from resumerge.sources.left_out import LeftOut
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import (
    Source,
    StoredForm,
    StoredWeight,
    in_words,
    note_on_quantisation,
)
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Rounded, Tensor

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
"""The endings of the names of tensors that a quantisation adds or puts in place of a weight."""

_PACKED = frozenset({"U8", "I8", "I32", "F4", "F6_E2M3", "F6_E3M2"})
"""The dtypes that only packed weight matrices have."""

_OF_ACTIVATIONS = re.compile(
    r"\.((input|output|prob|kv|[qkv])_(global_)?scale|(input|output|[qkv])_zero_point)$"
)
"""The names of tensors that describe the quantisation of activations and caches."""

_FLOAT8 = frozenset({"F8_E4M3", "F8_E5M2"})
"""The dtypes of weights that are plain weights unless the model has scales for them."""


def dequantised(source: Source) -> Source:
    """Return a model with its weights under their plain names, in the dtype that its config states.

    A quantised weight is decoded to float32 and merged in float32. A copied weight is rounded to
    the config's dtype, or to bfloat16 if the config states none. A model without quantised tensors
    is returned unchanged even if its config states a quantisation: configs often state one that was
    used in training and undone before the model was saved. Plain float8 tensors are weights.

    Raises:
        InputError: the tensors of a weight do not fit together; or the quantisation, which the
            error names, cannot be read.
        Resumable: the network failed.
    """
    reader = SourceReader({source.number: replace(source, streams=True)})
    try:
        checkpoint = Checkpoint(source.ref.text, source.tensors, source.config, reader.whole)
        weights = list(dequantised_weights(checkpoint))
    finally:
        reader.close()
    part_weights = {part: weight for weight in weights for part in weight.parts}
    unused_names = {name for weight in weights for name in weight.unused}
    if weights:
        unused_names |= {name for name in source.tensors if _OF_ACTIVATIONS.search(name)}
    plain_tensors = {
        plain_name: plain_tensor
        for plain_name, plain_tensor in source.tensors.items()
        if plain_name not in part_weights and plain_name not in unused_names
    }
    _check_plain(source, plain_tensors)
    if not weights:
        return source
    name_counts = Counter([*plain_tensors, *(weight.name for weight in weights)])
    if duplicates := [name for name, count in name_counts.items() if count > 1]:
        raise checkpoint.unfit(
            duplicates[0], "one weight of this name", "several: quantised, or plain"
        )
    dtype = _dtype(source.config)
    tensors: dict[str, Tensor] = {}
    for name, tensor in source.tensors.items():
        if name in plain_tensors:
            tensors[name] = tensor
        elif name in part_weights:
            weight = part_weights[name]
            tensors[weight.name] = Rounded.of(weight.tensor, dtype, takes_operand=True)
    left_out = (
        LeftOut(source.tensors[name], UnusedReason.QUANTISATION)
        for name in source.tensors
        if name in unused_names
    )
    quantised_counts = in_words(weight.kind for weight in weights)
    return replace(
        source,
        config=unquantised_config(source.config),
        tensors=tensors,
        stored=StoredForm(
            source.tensors,
            quantised_counts,
            checkpoint.stated,
            {w.name: StoredWeight((*w.parts, *w.unused), w.kind, w.written) for w in weights},
        ),
        left_out=(*source.left_out, *left_out),
        notes=(*source.notes, note_on_quantisation(source.ref.text, quantised_counts)),
    )


def _dtype(config: Mapping[str, Any]) -> str:
    """Return the dtype of weights without quantisation, by safetensors' name."""
    for section in (config, *(v for v in config.values() if isinstance(v, Mapping))):
        if dtype := stated_dtype(section):
            return dtype
    return USUAL_DTYPE


def _check_plain(source: Source, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that must be unpacked or scaled before they are weights.

    Raises:
        InputError: the model's quantisation cannot be read.
    """
    quantisation_and_name = _unread_quantisation(tensors)
    if quantisation_and_name is None:
        _check_float8(source, tensors)
        return
    quantisation, name = quantisation_and_name
    config = source.config.get("quantization_config")
    method = config.get("quant_method") if isinstance(config, dict) else None
    raise refuse(
        "The model is quantised in a way that is not read",
        where=source.ref.text,
        expected="plain weights, or one of the quantisations that docs/models.md lists",
        found=f"{quantisation}: tensor {name!r}"
        + (f"; config.json says quant_method: {str(method)[:40]}" if method else ""),
        fix="name the original model, or load this one with transformers, call dequantize() and "
        "save_pretrained(), and name the folder",
    )


def _check_float8(source: Source, tensors: Mapping[str, Tensor]) -> None:
    """Refuse float8 matrices without scales if the config states a quantisation.

    Raises:
        InputError: the model has a float8 matrix that lacks its scales.
    """
    if not any(stated_quantisations(source.config)):
        return
    for name, tensor in tensors.items():
        if tensor.dtype in _FLOAT8 and len(tensor.shape) > 1:
            raise refuse(
                f"The scales of a float8 weight are missing: {name}",
                where=source.ref.text,
                expected="weight_scale_inv or weight_scale beside it, as config.json states a "
                f"quantisation ({', '.join(stated_quantisations(source.config))})",
                found="none",
                fix="download the model again; or, if its float8 numbers are the weights, remove "
                "the quantisation from config.json",
            )


def _unread_quantisation(tensors: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """Return a quantisation and the name of a tensor that shows it; None for plain weights."""
    for name, tensor in tensors.items():
        for quantisation, sign in _SIGNS.items():
            ending = sign.search(name)
            if ending and ending.end() == len(name):
                return quantisation, name
        if name.endswith(".weight") and len(tensor.shape) > 1 and tensor.dtype in _PACKED:
            return f"weights packed into {tensor.dtype}", name
    scale_names = {
        name.rpartition(".")[0]: name for name in tensors if "scale" in name.rpartition(".")[2]
    }
    for name, tensor in tensors.items():
        stem = name.rpartition(".")[0]
        if tensor.dtype in _FLOAT8 and len(tensor.shape) > 1 and stem in scale_names:
            return "float8 with scales of an unknown kind", scale_names[stem]
    return None


def stated_quantisations(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of every quantisation that a config.json or its nested configs state."""
    for key, value in config.items():
        if key in STATED and value:
            method = value.get("quant_method") if isinstance(value, Mapping) else None
            yield str(method or key)[:40]
        elif isinstance(value, Mapping):
            yield from stated_quantisations(value)


def unquantised_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json without the quantisations that it and its nested configs state."""
    return {
        key: unquantised_config(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if not (key in STATED and value)
    }
