"""LoRA files of kohya's scripts: flat names, an alpha for each pair of matrices, and no config."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cached_property

from resumerge.sources.adapter_programs.config import WITHOUT_CONFIG
from resumerge.sources.adapter_programs.diffusers import renamed_from_diffusers
from resumerge.sources.adapter_programs.program import AdapterProgram, Config

_FLAT = re.compile(r"(?:lora|lycoris)_(?P<part>unet|te[123]?|transformer)_(?P<rest>.+)", re.DOTALL)
_BLOCKS = re.compile(
    r"(^|[./])(diffusion_model|layers|(down|up|mid|input|middle|output|double|single|joint)_blocks?"
    r"|(single_)?(transformer_)?blocks)\."
)
"""The parts of names that mark a diffusion model's layers, in pipelines and checkpoints."""

_PAIR = re.compile(r"\.lora_(down|up)\.weight$")
_ENCODERS = {
    "te": ("text_encoder", "text_model", "conditioner", "cond_stage_model"),
    "te1": ("text_encoder", "conditioner_embedders_0"),
    "te2": ("text_encoder_2", "conditioner_embedders_1"),
    "te3": ("text_encoder_3",),
}
"""The names of text encoders, by their part of a flat name: the component in a pipeline, then the
beginnings of names in checkpoints."""


def _wrote(config: Config, names: Iterable[str]) -> bool:
    """Return whether an adapter has no config, and all names end as kohya's scripts end them."""
    are_of_kohya = [bool(_PAIR.search(name) or name.endswith(".alpha")) for name in names]
    return not config and bool(are_of_kohya) and all(are_of_kohya)


KOHYA = AdapterProgram(
    name="kohya's scripts",
    has_config=False,
    wrote=_wrote,
    read_config=lambda _config, _where: WITHOUT_CONFIG,
    renamed=renamed_from_diffusers,  # it also renames lora_down and lora_up
)


class FlatNames:
    """The names of one model's tensors, to find a weight by the flat name of kohya's scripts.

    A flat name has underscores in place of dots.

    Args:
        names: the names of all tensors of the model.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def expected(self, module: str) -> str | None:
        """Return the expected layer of a flat name, in words; None if the name is not flat."""
        if _FLAT.fullmatch(module) is None:
            return None
        if not self._has_blocks:
            return "a diffusion model: the adapter's names are those of kohya's scripts"
        return "one layer whose name with underscores ends as the module's does"

    @cached_property
    def _has_blocks(self) -> bool:
        return any(map(_BLOCKS.search, self._names))

    @cached_property
    def _by_last_word(self) -> dict[str, list[str]]:
        names_by_word: dict[str, list[str]] = {}
        for name in self._names:
            if name.endswith(".weight"):
                names_by_word.setdefault(_flat(name).rpartition("_")[2], []).append(name)
        return names_by_word

    def find(self, module: str) -> str | None:
        """Return the name of a module's weight; None if no weight matches, or several do.

        Args:
            module: the flat name of the module in the adapter.
        """
        flat_name = _FLAT.fullmatch(module)
        if flat_name is None or not self._has_blocks:
            return None
        ending = flat_name["rest"]
        same_last_word = self._by_last_word.get(ending.rpartition("_")[2], [])
        matching_names = [
            n
            for n in same_last_word
            if f"_{_flat(n)}".endswith(f"_{ending}") and _is_of(n, flat_name["part"])
        ]
        return matching_names[0] if len(matching_names) == 1 else None


def _flat(name: str) -> str:
    return re.sub(r"[./]", "_", name.removesuffix(".weight"))


def _is_of(name: str, part: str) -> bool:
    """Return whether a tensor belongs to a part of a pipeline.

    Args:
        name: the tensor's name in the model.
        part: the part as flat names spell it, like ``unet`` or ``te1``.
    """
    component, separator, _ = name.partition("/")
    pipeline_folder = component if separator else None
    if part.startswith("te"):
        encoder_names = _ENCODERS[part]
        return (
            pipeline_folder == encoder_names[0]
            if pipeline_folder
            else _flat(name).startswith(encoder_names[1:])
        )
    all_encoder_names = [name for names in _ENCODERS.values() for name in names]
    return (
        pipeline_folder in ("unet", "transformer")
        if pipeline_folder
        else not _flat(name).startswith(tuple(all_encoder_names))
    )
