"""Tied tensors: a head that shares the embedding's weights and so is missing from the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from resumerge.sources.model import Source, TensorInfo

_HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output|unembed|decoder)\.weight$")
_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|shared|embeddings)\.weight$"
)


def ties_embeddings(config: Mapping[str, Any]) -> bool:
    """Whether config.json (or its text_config) says that head and embedding are one tensor."""
    text = config.get("text_config")
    nested = text.get("tie_word_embeddings") if isinstance(text, Mapping) else None
    return bool(config.get("tie_word_embeddings", nested))


def find_tensor(source: Source, name: str) -> TensorInfo | None:
    """The tensor of that name, or for a head tied to the embedding, the embedding; else None."""
    found = source.tensors.get(name)
    if found is not None:
        return found
    if not _HEAD.search(name) or not ties_embeddings(source.config):
        return None
    embeddings = [tensor for key, tensor in source.tensors.items() if _EMBEDDING.search(key)]
    return embeddings[0] if len(embeddings) == 1 else None


def is_tied_copy(source: Source, name: str) -> bool:
    """Whether a tensor is a head that its model ties to the embedding, so may be left out."""
    return bool(_HEAD.search(name)) and ties_embeddings(source.config)
