"""Layer counts in config.json, and which of them counts which list of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_COUNT = re.compile(r"layer|n_block|num_block|depth")
_WORD = re.compile(r"[a-z0-9]+")
_SAY_NOTHING = frozenset(
    {"num", "n", "number", "of", "hidden", "depth", "config", "model"}
    | {"layer", "layers", "block", "blocks"}
)
_SAME = {
    "visual": "vision",
    "image": "vision",
    "vit": "vision",
    "language": "text",
    "llm": "text",
    "speech": "audio",
    "encoders": "encoder",
    "decoders": "decoder",
}
_UNMARKED = frozenset({"text", "decoder"})
"""Words that a language model's key has and its tensors' names need not have, if no others do."""


def layer_counts(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, int]]:
    """(dotted key, count) of every layer count in a (nested) config."""
    for key, value in config.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from layer_counts(value, where)
        elif type(value) is int and value > 0 and _COUNT.search(key):
            yield where, value


def words(name: str) -> frozenset[str]:
    """What a stack's or key's name says: ``vision_config.num_hidden_layers`` says vision."""
    return (
        frozenset(_SAME.get(word, word) for word in _WORD.findall(name.lower().replace("_", ".")))
        - _SAY_NOTHING
    )


def counting_keys(stacks: Mapping[str, int], config: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys that count each stack; stacks that no key counts are left out.

    A key counts a stack of its length whose name says what the key says: ``vision_config.depth``
    counts ``visual.blocks`` and not ``model.layers``, ``decoder_layers`` counts
    ``model.decoder.layers``, ``num_hidden_layers`` whatever nothing says more of. What a key says
    and no stack does (``max_window_layers``) makes it count nothing.

    Args:
        stacks: lengths of the numbered lists.
        config: config.json.
    """
    free = _UNMARKED - {word for stack in stacks for word in words(stack)}
    found = {
        (stack, key): _fit(words(stack), words(key) - free)
        for key, count in layer_counts(config)
        for stack, length in stacks.items()
        if length == count
    }
    keys: dict[str, list[str]] = {}
    for stack in stacks:
        fits = {key: fit for (s, key), fit in found.items() if s == stack and fit >= 0}
        if fits:
            best = max(fits.values())
            keys[stack] = [key for key, fit in fits.items() if fit == best]
    taken = {key for several in keys.values() for key in several}
    for (stack, key), fit in found.items():  # an encoder-decoder's second name for the encoder's
        if fit >= 0 and key not in taken and "encoder" in words(stack):
            keys[stack].append(key)
    return keys


def _fit(stack: frozenset[str], key: frozenset[str]) -> int:
    return 2 * len(stack & key) - len(key - stack)
