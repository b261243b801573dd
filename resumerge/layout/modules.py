"""The parts of a model that ``modules`` in a recipe names: language model, vision tower, bridge.

mergekit knows the parts of a few architectures by tables; here they follow from the stacks. Its
names for them (``text_decoder``, ``vision_tower``, ``multi_modal_projector``, ``encoder``,
``decoder``, ``shared``, ``default``) are understood for every model, beside the names that
stand in the tensors' own (``language_model``, ``visual``).
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
        stack: its list of layers; None for a part without layers.
        tensors: the names of its tensors, in the order given.
    """

    name: str
    names: frozenset[str]
    stack: str | None
    tensors: tuple[str, ...]


def find_parts(tensors: Iterable[str], layers: Layers) -> list[ModulePart]:
    """Divide a model's tensors among its parts: each belongs to exactly one.

    A part is a stack with all tensors under the same prefix. Bridges between parts are a part of
    their own. Tensors under no stack's prefix belong to the main stack's part, or to ``shared`` if
    there is no main stack. A model with at most one stack is one part.
    """
    names = list(tensors)
    if len(layers.counts) < 2:
        called = {WHOLE, *_ROLE_NAMES["text"], *(s for s in layers.counts)}
        called |= {part for stack in layers.counts for part in stack.split(".")[:-1]}
        return [ModulePart(WHOLE, frozenset(called), next(iter(layers.counts), None), tuple(names))]
    prefixes = _prefixes(list(layers.counts))
    members: dict[str, list[str]] = {stack: [] for stack in prefixes}
    members |= {BRIDGE: [], SHARED: []}
    for name in names:
        members[_owner(name, prefixes, layers)].append(name)
    parts = [
        _part(stack, prefix, members[stack], layers.main == stack)
        for stack, prefix in prefixes.items()
    ]
    parts += [
        ModulePart(name, frozenset({name}), None, tuple(members[name]))
        for name in (BRIDGE, SHARED)
        if members[name]
    ]
    return parts


def is_bridge(name: str) -> bool:
    """Return whether a tensor belongs to a bridge between two parts, by its name."""
    return bool(_BRIDGE.search(name))


def _prefixes(stacks: list[str]) -> dict[str, str]:
    """Return the shortest beginning of each stack's name that no other stack's name has."""
    prefixes = {}
    for stack in stacks:
        pieces = stack.split(".")
        starts = [".".join(pieces[: n + 1]) for n in range(len(pieces))]
        others = [other + "." for other in stacks if other != stack]
        prefixes[stack] = next(
            (s for s in starts if not any(o.startswith(s + ".") for o in others)), stack
        )
    return prefixes


def _owner(name: str, prefixes: Mapping[str, str], layers: Layers) -> str:
    located = layers.locate(name)
    if located is not None:
        return located.stack
    if is_bridge(name):
        return BRIDGE
    under = [stack for stack, prefix in prefixes.items() if name.startswith(prefix + ".")]
    if under:
        return max(under, key=lambda stack: len(prefixes[stack]))
    return layers.main or SHARED


def _part(stack: str, prefix: str, tensors: list[str], main: bool) -> ModulePart:
    stack_words = words(stack)
    role = next((r for r in _ROLE_NAMES if r in stack_words), "text" if main else None)
    own = prefix.rpartition(".")[2]
    called = {stack, prefix, own, *_ROLE_NAMES.get(role or "", ())}
    called |= {side for side in ("encoder", "decoder") if side in stack_words and role is None}
    return ModulePart(
        _ROLE_NAMES[role][0] if role else own, frozenset(called), stack, tuple(tensors)
    )
