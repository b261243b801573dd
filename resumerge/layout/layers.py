"""Which numbered list of tensors is the model's stack of layers, inferred from names and config.

No table of architectures: a stack is the outermost numbered list in the tensor names
(``model.layers.0.…``, ``encoder.layer.0.…``, ``h.0.…``) that runs from 0 without gaps and is as
long as a layer count in config.json.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_COUNT_KEY = re.compile(r"layer|n_block|num_block|depth")
_BEFORE_LAYERS = re.compile(r"emb|wte|wpe|patch|conv|stem|cls_token|mask_token|pre_layer")
_AFTER_LAYERS = re.compile(r"embed_out|output_embed|unembed")


@dataclass(frozen=True)
class LayerName:
    """A tensor's name taken apart: ``model.layers`` · 3 · ``mlp.up_proj.weight``."""

    stack: str
    index: int
    rest: str

    def at(self, index: int) -> str:
        """The same tensor in another layer."""
        return f"{self.stack}.{index}.{self.rest}"


@dataclass(frozen=True)
class Layers:
    """The stacks of layers in one model.

    Args:
        counts: every stack's name with its number of layers.
        main: the stack that slices cut; None where there is none, or no single one.
    """

    counts: Mapping[str, int]
    main: str | None

    @property
    def count(self) -> int | None:
        """Number of layers of the main stack."""
        return self.counts[self.main] if self.main is not None else None

    def locate(self, tensor: str) -> LayerName | None:
        """Where a tensor stands, or None for one outside every stack."""
        name = split(tensor)
        return name if name is not None and name.stack in self.counts else None

    def position(self, tensor: str) -> float:
        """Where a gradient stands at this tensor: from 0 at the first layer to 1 at the last.

        As in mergekit 0.1.5, observed: tensors before and after the layers stand at 0, the layer
        of a stack of one at 1.
        """
        name = self.locate(tensor)
        return 0.0 if name is None else step_position(name.index, self.counts[name.stack])


def step_position(step: int, steps: int) -> float:
    """Where the `step`-th of `steps` layers stands, from 0 to 1."""
    return step / (steps - 1) if steps > 1 else 1.0


def split(tensor: str) -> LayerName | None:
    """Take a tensor's name apart at its first number."""
    parts = tensor.split(".")
    for i, part in enumerate(parts[:-1]):
        if part.isdecimal() and i > 0:
            return LayerName(".".join(parts[:i]), int(part), ".".join(parts[i + 1 :]))
    return None


def before_layers(tensor: str) -> bool:
    """Whether a tensor outside the layers is used before them (embeddings) or after (head)."""
    return bool(_BEFORE_LAYERS.search(tensor)) and not _AFTER_LAYERS.search(tensor)


def infer_layers(tensors: Iterable[str], config: Mapping[str, Any]) -> Layers:
    """Find the stacks of layers of a model.

    Args:
        tensors: names of all its tensors.
        config: its config.json; where it is empty or names no layer count, every gapless list
            counts as a stack and the one with the most tensors is the main one.
    """
    indices: dict[str, set[int]] = defaultdict(set)
    members: dict[str, int] = defaultdict(int)
    for tensor in tensors:
        name = split(tensor)
        if name is not None:
            indices[name.stack].add(name.index)
            members[name.stack] += 1
    gapless = {s: len(found) for s, found in indices.items() if max(found) == len(found) - 1}
    named = list(layer_counts(config))
    counts = {
        s: n for s, n in gapless.items() if not named or n in {count for _, _, count in named}
    }
    if not counts:
        return Layers({}, None)
    if not named:
        return Layers(counts, max(counts, key=lambda stack: (members[stack], stack)))
    # The language model of a composite keeps its count at the top or in text_config.
    shallow = {count for depth, key, count in named if depth == 0 or "text" in key}
    candidates = [s for s, n in counts.items() if n in shallow] or list(counts)
    return Layers(counts, candidates[0] if len(candidates) == 1 else None)


def layer_counts(
    config: Mapping[str, Any], depth: int = 0, path: str = ""
) -> Iterator[tuple[int, str, int]]:
    """(depth, dotted key, count) of every layer count in a (nested) config."""
    for key, value in config.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from layer_counts(value, depth + 1, where)
        elif type(value) is int and value > 0 and _COUNT_KEY.search(key):
            yield depth, where, value
