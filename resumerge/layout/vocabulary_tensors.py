"""Finds the tensors that have a row for every token: embeddings, output heads and their biases.

They are outside the layers, are named like an embedding or a head, and have as many rows as a
``vocab_size`` in the (nested) config.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.layout.names import split
from resumerge.sources.tokenizers.row_map import vocabulary_axis
from resumerge.sources.types import Source

_NAMES = re.compile(
    r"emb|wte|word|tok|shared|head|output|decoder|prediction|logits|proj_out|generator"
)
_OTHER_AXES = re.compile(
    r"position|pos_emb|wpe|token_type|segment|patch|vision|visual|image|audio|norm|relative|rel_"
)
_INPUT = re.compile(r"emb|wte|shared")


def vocabulary_size(source: Source, tokens: int = 0) -> int | None:
    """Rows of a model's embedding, which may be more than its tokenizer has tokens.

    Args:
        tokens: of the tokenizer: which vocabulary is meant, where a composite model has several.

    Returns:
        None where nothing looks like an embedding.
    """
    stated = list(dict.fromkeys(vocabulary_sizes(source.config)))
    lengths = [
        vocabulary_axis(tensor.shape)
        for name, tensor in source.tensors.items()
        if _has_vocabulary_name(name) and _INPUT.search(name) and len(tensor.shape) == 2
    ]
    found = [size for size in stated if size in lengths] or (lengths if not stated else [])
    roomy = [size for size in found if size >= tokens]
    return min(roomy) if roomy else max(found, default=None)


def has_vocabulary_axis(name: str, shape: tuple[int, ...], size: int | None) -> bool:
    """Whether a tensor has a row for every one of `size` tokens."""
    return size is not None and vocabulary_axis(shape) == size and _has_vocabulary_name(name)


def vocabulary_sizes(config: Mapping[str, Any]) -> Iterator[int]:
    """Every ``vocab_size``, the outermost first."""
    if type(config.get("vocab_size")) is int:
        yield config["vocab_size"]
    for value in config.values():
        if isinstance(value, Mapping):
            yield from vocabulary_sizes(value)


def _has_vocabulary_name(name: str) -> bool:
    outside = split(name) is None
    return outside and bool(_NAMES.search(name)) and not _OTHER_AXES.search(name)
