"""The parts of a model that ``modules`` in a recipe names: language model, vision tower, bridge.

mergekit has tables of the parts of a few architectures. This program infers the parts from the
stacks. For every model it accepts mergekit's names of the parts (``text_decoder``,
``vision_tower``, ``multi_modal_projector``, ``encoder``, ``decoder``, ``shared``, ``default``) and
the names in the tensors' names (``language_model``, ``visual``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from resumerge.layout.counts import words
from resumerge.layout.layers import Layers

_BRIDGE = re.compile(
    r"projector|merger|connector|multi_?modal|mm_|resampler|aligner|embed_(vision|audio)"
)
_ROLE_NAMES = {
    "text": ("text_decoder", "language_model", "text_model"),
    "vision": ("vision_tower", "vision_model", "visual"),
    "audio": ("audio_tower", "audio_encoder", "speech_encoder"),
}
BRIDGE = "multi_modal_projector"
SHARED = "shared"
WHOLE = "default"


@dataclass(frozen=True)
class ModulePart:
    """One part of a model.

    Args:
        name: the part's name in messages.
        names: all names that a recipe may use for it.
        stack: the name of its stack of layers; None for a part without layers.
        tensors: the names of its tensors, in the order in which `find_parts` got them.
    """

    name: str
    names: frozenset[str]
    stack: str | None
    tensors: tuple[str, ...]


def find_parts(tensors: Iterable[str], layers: Layers) -> list[ModulePart]:
    """Divide a model's tensors into parts. Each tensor belongs to exactly one part.

    A part is a stack with all tensors that have its prefix. All bridges between parts form one
    part. Tensors with no stack's prefix belong to the main stack's part, or to ``shared`` if there
    is no main stack. A model with at most one stack is a single part.
    """
    names = list(tensors)
    if len(layers.counts) < 2:
        recipe_names = {WHOLE, *_ROLE_NAMES["text"], *(s for s in layers.counts)}
        recipe_names |= {part for stack in layers.counts for part in stack.split(".")[:-1]}
        return [
            ModulePart(
                WHOLE, frozenset(recipe_names), next(iter(layers.counts), None), tuple(names)
            )
        ]
    prefixes = _prefixes(list(layers.counts))
    names_by_part: dict[str, list[str]] = {stack: [] for stack in prefixes}
    names_by_part |= {BRIDGE: [], SHARED: []}
    for name in names:
        names_by_part[_owner(name, prefixes, layers)].append(name)
    parts = [
        _part(stack, prefix, names_by_part[stack], layers.main == stack)
        for stack, prefix in prefixes.items()
    ]
    parts += [
        ModulePart(name, frozenset({name}), None, tuple(names_by_part[name]))
        for name in (BRIDGE, SHARED)
        if names_by_part[name]
    ]
    return parts


def is_bridge(name: str) -> bool:
    """Return whether a tensor belongs to a bridge between two parts, by its name."""
    return bool(_BRIDGE.search(name))


def _prefixes(stacks: list[str]) -> dict[str, str]:
    """Return the shortest beginning of each stack's name that begins no other stack's name."""
    prefixes = {}
    for stack in stacks:
        pieces = stack.split(".")
        beginnings = [".".join(pieces[: n + 1]) for n in range(len(pieces))]
        other_stacks = [other_stack + "." for other_stack in stacks if other_stack != stack]
        prefixes[stack] = next(
            (
                beginning
                for beginning in beginnings
                if not any(o.startswith(beginning + ".") for o in other_stacks)
            ),
            stack,
        )
    return prefixes


def _owner(name: str, prefixes: Mapping[str, str], layers: Layers) -> str:
    layer_name = layers.locate(name)
    if layer_name is not None:
        return layer_name.stack
    if is_bridge(name):
        return BRIDGE
    containing_stacks = [
        stack for stack, prefix in prefixes.items() if name.startswith(prefix + ".")
    ]
    if containing_stacks:
        return max(containing_stacks, key=lambda stack: len(prefixes[stack]))
    return layers.main or SHARED


def _part(stack: str, prefix: str, tensors: list[str], main: bool) -> ModulePart:
    stack_words = words(stack)
    role = next((r for r in _ROLE_NAMES if r in stack_words), "text" if main else None)
    last_word = prefix.rpartition(".")[2]
    recipe_names = {stack, prefix, last_word, *_ROLE_NAMES.get(role or "", ())}
    recipe_names |= {
        side for side in ("encoder", "decoder") if side in stack_words and role is None
    }
    return ModulePart(
        _ROLE_NAMES[role][0] if role else last_word, frozenset(recipe_names), stack, tuple(tensors)
    )
