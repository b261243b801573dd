"""Finds the layer counts in config.json, and the stack of layers that each of them counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_COUNT = re.compile(r"layer|n_block|num_block|depth")
_NO_COUNT = re.compile(r"interval|period|offset|every|frequency|step$")
_LISTS = re.compile(
    r"layers?_types|layers?_block_types?|block_types|attn_layers|hybrid_override_pattern"
)
_WORD = re.compile(r"[a-z0-9]+")
_WITHOUT_MEANING = frozenset(
    {"num", "n", "number", "of", "hidden", "depth", "config", "model"}
    | {"layer", "layers", "block", "blocks"}
)
_SYNONYMS = {
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
"""Words in a language model's key that its tensors' names may lack, if no stack has them."""


def layer_counts(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, int]]:
    """Yield (dotted key, count) of every layer count in a (nested) config."""
    for key, value in config.items():
        dotted_key = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from layer_counts(value, dotted_key)
        elif type(value) is int and value > 0 and _counts(key):
            yield dotted_key, value


def _counts(key: str) -> bool:
    return bool(_COUNT.search(key)) and not _NO_COUNT.search(key)


def listed_keys(stacks: Mapping[str, int], config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the keys of lists with an entry for each layer, by the stack that has their length.

    Some configs have such a list, but no layer count (Nemotron-H, Reformer).

    Args:
        stacks: number of layers of each stack, the stack with the most tensors first.
        config: the model's config.json, with its nested sections.
    """
    keys: dict[str, list[str]] = {}
    for key, entry_count in _list_lengths(config):
        stack = next((s for s, length in stacks.items() if length == entry_count), None)
        if stack is not None:
            keys.setdefault(stack, []).append(key)
    return keys


def _list_lengths(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        dotted_key = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from _list_lengths(value, dotted_key)
        elif isinstance(value, list | str) and _LISTS.fullmatch(key):
            yield dotted_key, len(value)


def words(name: str) -> frozenset[str]:
    """Return the qualifying words of a name or key: vision for ``vision_config.depth``."""
    return (
        frozenset(
            _SYNONYMS.get(word, word) for word in _WORD.findall(name.lower().replace("_", "."))
        )
        - _WITHOUT_MEANING
    )


def counting_keys(stacks: Mapping[str, int], config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the keys that count each stack. Stacks that no key counts are not included.

    A key counts a stack if its value is the stack's length and its words are in the stack's name.
    ``vision_config.depth`` counts ``visual.blocks`` but not ``model.layers``. ``decoder_layers``
    counts ``model.decoder.layers``. ``num_hidden_layers`` counts a stack that has no better key. A
    key with a word that no stack has (``max_window_layers``) counts no stack.

    Args:
        stacks: number of layers of each stack, by the stack's name.
        config: the model's config.json, with its nested sections.
    """
    unmarked_words = _UNMARKED - {word for stack in stacks for word in words(stack)}
    scores = {
        (stack, key): _score(words(stack), words(key) - unmarked_words)
        for key, count in layer_counts(config)
        for stack, length in stacks.items()
        if length == count
    }
    keys: dict[str, list[str]] = {}
    for stack in stacks:
        scores_of_keys = {
            key: score
            for (scored_stack, key), score in scores.items()
            if scored_stack == stack and score >= 0
        }
        if scores_of_keys:
            best_score = max(scores_of_keys.values())
            keys[stack] = [key for key, score in scores_of_keys.items() if score == best_score]
    used_keys = {key for keys_of_stack in keys.values() for key in keys_of_stack}
    for (stack, key), score in scores.items():  # a second key for an encoder
        if score >= 0 and key not in used_keys and "encoder" in words(stack):
            keys[stack].append(key)
    return keys


def _score(stack: frozenset[str], key: frozenset[str]) -> int:
    return 2 * len(stack & key) - len(key - stack)
