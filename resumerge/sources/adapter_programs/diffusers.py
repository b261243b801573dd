"""LoRA files of diffusers: a part of a pipeline before each name, and no adapter_config.json.

Matrices have the names of peft, or older ones. Their factor is 1, unless there are alphas as
tensors, or the header of the file has peft's options for each part (``lora_adapter_metadata``).
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
"""The key in a safetensors file's header under which diffusers writes an adapter's options."""

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
    """Return whether there is no config but in a header, and all names are names of diffusers."""
    known = [bool(_PART.match(n) and (_MATRIX.fullmatch(n) or _OTHER.fullmatch(n))) for n in names]
    return config.keys() <= {IN_HEADER} and bool(known) and all(known)


def renamed_from_diffusers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return an adapter's tensors under the names that peft has now."""
    return {_renamed(name): tensor for name, tensor in tensors.items()}


def _renamed(name: str) -> str:
    found = _MATRIX.fullmatch(name)
    if found is None:
        return name
    matrix = found["peft"] or {"down": "A", "up": "B"}[found["way"] or found["kohya"]]
    module = found["module"]
    if "_lora." in name:  # processors of attention call the first of the two output modules so
        module = _OUTPUT.sub(".to_out.0", module.replace(".processor.", "."))
    return f"{module}.lora_{matrix}.weight"


def _read_options(config: Config, where: str) -> LoraConfig:
    """Return the options of all parts of a pipeline as those of one adapter.

    Args:
        config: the text of the file's header, as `IN_HEADER`; empty if it has none.
        where: the file as named in messages.

    Raises:
        InputError: no JSON, an unsupported variant of LoRA, or different variants in the parts.
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
    first, *others = (
        replace(s, alpha=None, alpha_pattern={}, rank=None, rank_pattern={})
        for s in settings_by_part.values()
    )
    if any(other != first for other in others):
        raise refuse(
            "The parts of the adapter have options that do not go together",
            where=where,
            expected="the same options for all, but for ranks and alphas",
            found=", ".join(settings_by_part),
            fix="save an adapter for each part (save_lora_adapter)",
        )
    return replace(first, alpha_pattern=alphas, rank_pattern=ranks)


def _of_part(part: str, patterns: Mapping[str, float], every: float | None) -> dict[str, float]:
    """Return patterns of module names, limited to the modules of one part."""
    limited = {
        rf"{part}\.{key[1:]}" if key.startswith("^") else rf"{part}\.(.*\.)?({key})": value
        for key, value in patterns.items()
    }
    return limited if every is None else limited | {rf"{part}\..+": every}


DIFFUSERS = AdapterProgram(
    name="diffusers",
    has_config=False,
    wrote=_wrote,
    read_config=_read_options,
    renamed=renamed_from_diffusers,
    weight_files=("pytorch_lora_weights.safetensors",),
)
