"""Finds the stacks of layers of a model from tensor names and config.json.

There is no table of architectures. A stack is the outermost numbered list in the tensor names
(``model.layers.0.…``, ``encoder.layer.0.…``, ``h.0.…``). Its numbers start at 0 without gaps, and
its length is a layer count in config.json whose key fits the stack's name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from resumerge.layout.counts import counting_keys, layer_counts, listed_keys, words
from resumerge.layout.names import LayerName, split


@dataclass(frozen=True)
class Layers:
    """The stacks of layers in one model.

    Args:
        counts: the number of layers of every stack, by name.
        main: the stack that slices choose layers from; None if the model has no such stack, or
            several.
        keys: the dotted keys of config.json that count each stack, by the stack's name.
    """

    counts: Mapping[str, int]
    main: str | None
    keys: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def count(self) -> int | None:
        """The number of layers of the main stack; None if there is no main stack."""
        return self.counts[self.main] if self.main is not None else None

    def locate(self, tensor: str) -> LayerName | None:
        """Return the stack and layer of a tensor; None for a tensor outside every stack."""
        name = split(tensor)
        return name if name is not None and name.index < self.counts.get(name.stack, 0) else None

    def position(self, tensor: str) -> float:
        """Return a tensor's position for gradients: from 0 in the first layer to 1 in the last.

        As in mergekit 0.1.5 (observed), tensors outside the layers have position 0, and the only
        layer of a stack has position 1.
        """
        name = self.locate(tensor)
        return 0.0 if name is None else step_position(name.index, self.counts[name.stack])


def step_position(step: int, steps: int) -> float:
    """Return the position of the `step`-th of `steps` layers, from 0 to 1."""
    return step / (steps - 1) if steps > 1 else 1.0


def infer_layers(tensors: Iterable[str], config: Mapping[str, Any]) -> Layers:
    """Find the stacks of layers of a model.

    Args:
        tensors: names of all tensors of the model.
        config: the model's config.json. If it is empty or has no layer count, every gapless list is
            a stack, and the stack with the most tensors is the main stack.
    """
    indices: dict[str, set[int]] = defaultdict(set)
    member_counts: dict[str, int] = defaultdict(int)
    for tensor in tensors:
        name = split(tensor)
        if name is not None:
            indices[name.stack].add(name.index)
            member_counts[name.stack] += 1
    gapless_counts = {
        stack: len(numbers)
        for stack, numbers in indices.items()
        if max(numbers) == len(numbers) - 1
    }
    if not gapless_counts:
        return Layers({}, None)
    keys = counting_keys(gapless_counts, config)
    if not keys:
        stacks_by_size = sorted(
            gapless_counts, key=lambda stack: (member_counts[stack], stack), reverse=True
        )
        keys = listed_keys({stack: gapless_counts[stack] for stack in stacks_by_size}, config)
        if not keys and not list(layer_counts(config)):
            return Layers(gapless_counts, stacks_by_size[0])
    for extra_layers in _uncounted_layers(config):
        shorter_counts = {
            stack: count - extra_layers
            for stack, count in gapless_counts.items()
            if stack not in keys
        }
        further_keys = counting_keys(shorter_counts, config)
        gapless_counts |= {stack: shorter_counts[stack] for stack in further_keys}
        keys |= further_keys
    return Layers(
        {stack: gapless_counts[stack] for stack in keys}, _main(keys, member_counts), keys
    )


def _uncounted_layers(config: Mapping[str, Any]) -> list[int]:
    """Return the numbers of layers that predict further tokens. Layer counts exclude them."""
    return [n for key, n in layer_counts(config) if "nextn" in key or "mtp" in key]


def _main(keys: Mapping[str, list[str]], members: Mapping[str, int]) -> str | None:
    """Return the main stack: the only stack, or the language model's; None if this is not clear.

    A stack whose key has the word "text" is the language model's; if two stacks have such a key,
    the result is None. Otherwise it is the stack with the most tensors among those that are counted
    by a key without a qualifying word, such as ``num_hidden_layers``. If the model has both an
    encoder and a decoder, or no such stack, the result is None.
    """
    if len(keys) == 1:
        return next(iter(keys))
    words_of_keys = {
        stack: {frozenset(words(key)) for key in keys_of_stack}
        for stack, keys_of_stack in keys.items()
    }
    text_stacks = [
        stack for stack, word_sets in words_of_keys.items() if any("text" in s for s in word_sets)
    ]
    if text_stacks:
        return text_stacks[0] if len(text_stacks) == 1 else None
    sides = {word for stack in keys for word in words(stack) & {"encoder", "decoder"}}
    unqualified_stacks = [
        stack for stack, word_sets in words_of_keys.items() if frozenset() in word_sets
    ]
    if not unqualified_stacks or len(sides) > 1:
        return None
    return max(unqualified_stacks, key=lambda stack: members[stack])
