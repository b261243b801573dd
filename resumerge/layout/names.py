"""Tensor names, split into parts: ``model.layers`` · 3 · ``mlp.up_proj.weight``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

_BEFORE_LAYERS = re.compile(r"emb|wte|wpe|patch|conv|stem|cls_token|mask_token|pre_layer|shared")
_AFTER_LAYERS = re.compile(r"embed_out|output_embed|unembed|embedding_norm")

SHOWN = 6
"""The largest number of names in a message, after their numbers are folded into ranges."""


@dataclass(frozen=True)
class LayerName:
    """A tensor's name, split at its first number."""

    stack: str
    index: int
    rest: str

    def at(self, index: int) -> str:
        """Return the name of the same tensor in another layer."""
        return f"{self.stack}.{index}.{self.rest}"


def split(tensor: str) -> LayerName | None:
    """Split a tensor's name at its first number; None if it has no number."""
    parts = tensor.split(".")
    for i, part in enumerate(parts[:-1]):
        if part.isdecimal() and i > 0:
            return LayerName(".".join(parts[:i]), int(part), ".".join(parts[i + 1 :]))
    return None


def before_layers(tensor: str) -> bool:
    """Return whether a tensor outside the layers is used before them, as embeddings are.

    Other tensors outside the layers, such as heads, are used after the layers.
    """
    return bool(_BEFORE_LAYERS.search(tensor)) and not _AFTER_LAYERS.search(tensor)


def collapse(tensors: Iterable[str]) -> list[str]:
    """Fold names that differ only in numbers: ``model.layers.{0-3,5}.mlp.up_proj.weight``."""
    sets_by_key: dict[tuple[str, ...], list[set[int]]] = {}
    for tensor in tensors:
        parts = tensor.split(".")
        key = tuple("#" if part.isdecimal() else part for part in parts)
        numbers_in_name = [int(part) for part in parts if part.isdecimal()]
        number_sets = sets_by_key.setdefault(key, [set() for _ in numbers_in_name])
        for numbers_at_place, number in zip(number_sets, numbers_in_name):
            numbers_at_place.add(number)
    return [_filled(key, number_sets) for key, number_sets in sets_by_key.items()]


def listed(tensors: Iterable[str]) -> str:
    """Return names for a message: numbers folded into ranges, at most `SHOWN` names."""
    folded_names = collapse(tensors)
    shown_text = ", ".join(folded_names[:SHOWN])
    return shown_text + (
        f" and {len(folded_names) - SHOWN} more kinds" if len(folded_names) > SHOWN else ""
    )


def _filled(key: tuple[str, ...], sets: list[set[int]]) -> str:
    remaining_sets = iter(sets)
    return ".".join(_ranges(next(remaining_sets)) if part == "#" else part for part in key)


def _ranges(numbers: set[int]) -> str:
    runs: dict[int, list[int]] = defaultdict(list)
    for place, number in enumerate(sorted(numbers)):
        runs[number - place].append(number)
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs.values()]
    return texts[0] if len(numbers) == 1 else "{" + ",".join(texts) + "}"
