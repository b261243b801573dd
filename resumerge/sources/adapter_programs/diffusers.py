"""LoRA files of diffusers: names begin with a part of a pipeline, and there is no config file.

Matrices have peft's names or older ones. The scale is 1 unless the file has alphas as tensors, or
peft's options for each part in its header (``lora_adapter_metadata``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from resumerge.errors import refuse
from resumerge.sources.adapter_programs.config import (
    WITHOUT_CONFIG,
    LoraConfig,
    parse_adapter_config,
)
from resumerge.sources.adapter_programs.program import AdapterProgram, Config
from resumerge.sources.json_object import json_object
from resumerge.tensors import Tensor

IN_HEADER = "lora_adapter_metadata"
"""The key under which diffusers writes an adapter's options into a safetensors file's header."""

_PART = re.compile(r"(unet|transformer|text_encoder(_\d)?|(model\.)?diffusion_model)\.")
_MATRIX = re.compile(
    r"(?P<module>.+?)"
    r"(?:\.lora_(?P<peft>[AB])|(?:\.lora|\.lora_linear_layer|_lora)\.(?P<way>down|up)"
    r"|\.lora_(?P<kohya>down|up))\.weight",
    re.DOTALL,
)
_OTHER = re.compile(r".+\.(alpha|lora_magnitude_vector)", re.DOTALL)
_OUTPUT = re.compile(r"\.to_out$")


def _wrote(config: Config, names: Iterable[str]) -> bool:
    """Return whether an adapter has no config file, and diffusers writes all of its names."""
    are_of_diffusers = [
        bool(_PART.match(n) and (_MATRIX.fullmatch(n) or _OTHER.fullmatch(n))) for n in names
    ]
    return config.keys() <= {IN_HEADER} and bool(are_of_diffusers) and all(are_of_diffusers)


def renamed_from_diffusers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return an adapter's tensors under peft's current names."""
    return {_renamed(name): tensor for name, tensor in tensors.items()}


def _renamed(name: str) -> str:
    match = _MATRIX.fullmatch(name)
    if match is None:
        return name
    matrix = match["peft"] or {"down": "A", "up": "B"}[match["way"] or match["kohya"]]
    module = match["module"]
    if "_lora." in name:  # an attention processor calls the first of its two output modules to_out
        module = _OUTPUT.sub(".to_out.0", module.replace(".processor.", "."))
    return f"{module}.lora_{matrix}.weight"


def _read_options(config: Config, where: str) -> LoraConfig:
    """Combine the options of all parts of a pipeline into the settings of one adapter.

    Args:
        config: the options of the file's header as JSON text, under `IN_HEADER`; empty without any.
        where: the file's name in messages.

    Raises:
        InputError: the options are not JSON, have invalid values, state an unsupported variant of
            LoRA, or state different variants for the parts.
    """
    options_by_part: dict[str, dict[str, Any]] = {}
    try:
        options_in_header = json_object(str(config.get(IN_HEADER, "{}")).encode())
    except ValueError as error:
        raise refuse(
            "The options in the adapter's header are not readable",
            where=where,
            expected=f"{IN_HEADER}: a JSON object",
            found=str(error)[:100],
            fix="download or save the adapter again",
        ) from None
    for key, value in options_in_header.items():
        part, _, option = key.partition(".")
        options_by_part.setdefault(part, {})[option] = value
    if not options_by_part:
        return WITHOUT_CONFIG
    settings_by_part = {
        part: parse_adapter_config({**options, "peft_type": "LORA"}, where)
        for part, options in options_by_part.items()
    }
    alphas, ranks = dict[str, float](), dict[str, float]()
    for part, settings in settings_by_part.items():
        alphas |= _of_part(part, settings.alpha_pattern, settings.alpha)
        ranks |= _of_part(part, settings.rank_pattern, settings.rank)
    first_settings, *other_settings = (
        replace(part_settings, alpha=None, alpha_pattern={}, rank=None, rank_pattern={})
        for part_settings in settings_by_part.values()
    )
    if any(settings_of_part != first_settings for settings_of_part in other_settings):
        raise refuse(
            "The parts of the adapter have options that do not go together",
            where=where,
            expected="the same options for all, but for ranks and alphas",
            found=", ".join(settings_by_part),
            fix="save an adapter for each part (save_lora_adapter)",
        )
    return replace(first_settings, alpha_pattern=alphas, rank_pattern=ranks)


def _of_part(part: str, patterns: Mapping[str, float], every: float | None) -> dict[str, float]:
    """Return patterns of module names that match only modules of one part.

    Args:
        part: the part of the pipeline as the adapter's names begin, such as ``unet``.
        patterns: the values by pattern, for modules of the part.
        every: the value for all other modules of the part; None without one.
    """
    values_by_pattern = {
        rf"{part}\.{key[1:]}" if key.startswith("^") else rf"{part}\.(.*\.)?({key})": value
        for key, value in patterns.items()
    }
    return values_by_pattern if every is None else values_by_pattern | {rf"{part}\..+": every}


DIFFUSERS = AdapterProgram(
    name="diffusers",
    has_config=False,
    wrote=_wrote,
    read_config=_read_options,
    renamed=renamed_from_diffusers,
    weight_files=("pytorch_lora_weights.safetensors",),
)
