"""The type of a program that writes LoRA adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.types import Source
from resumerge.tensors import Tensor

Config = Mapping[str, Any]
"""The config of an adapter's `Source`: its adapter_config.json; or, without one, the options in the
header of its file (`diffusers.IN_HEADER`); or, without these, an empty mapping."""


@dataclass(frozen=True)
class AdapterProgram:
    """A program that writes LoRA adapters.

    Args:
        name: the name in messages.
        has_config: whether the program writes an adapter_config.json.
        wrote: returns whether the program wrote an adapter, from its config and tensor names.
        read_config: returns the settings in a config; the second argument is the config's name in
            messages.
        renamed: returns an adapter's tensors with the names and orientation of PEFT.
        weight_files: the names of an adapter's only weight file, in addition to PEFT's names.
    """

    name: str
    has_config: bool
    wrote: Callable[[Config, Iterable[str]], bool]
    read_config: Callable[[Config, str], LoraConfig]
    renamed: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
    weight_files: tuple[str, ...] = ()

    def settings(self, adapter: Source) -> LoraConfig:
        """Return the settings of an adapter that the program wrote.

        Raises:
            InputError: the adapter is not a LoRA, its variant is not supported, or a value is
                invalid.
        """
        where = adapter.ref.text
        return self.read_config(
            adapter.config, f"{where}/adapter_config.json" if self.has_config else where
        )
