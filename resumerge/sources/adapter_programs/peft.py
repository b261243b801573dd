"""Adapters of PEFT itself. The adapters of other programs are converted to its names and config."""

from __future__ import annotations

from collections.abc import Iterable

from resumerge.sources.adapter_programs.config import parse_adapter_config
from resumerge.sources.adapter_programs.diffusers import IN_HEADER
from resumerge.sources.adapter_programs.program import AdapterProgram, Config


def _wrote(config: Config, _names: Iterable[str]) -> bool:
    """Return whether an adapter has an adapter_config.json with any content."""
    return not config.keys() <= {IN_HEADER}


PEFT = AdapterProgram(
    name="peft",
    has_config=True,
    wrote=_wrote,
    read_config=parse_adapter_config,
    renamed=lambda tensors: tensors,
)
