"""Tensors that a file may lack: tied to another tensor, or computed when a model is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from resumerge.sources.types import Source
from resumerge.tensors import Tensor

_HEAD = re.compile(
    r"(^|\.)(lm_head|embed_out|output|unembed|decoder|vocab_projector|generator_lm_head)\.weight$"
)
_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|shared|embeddings)\.weight$"
)
_HEAD_BIAS = re.compile(r"(^|\.)decoder\.bias$")
_COMPUTED = re.compile(
    r"(^|\.)(inv_freq|rotary_emb\..*|position_ids|token_type_ids|num_batches_tracked"
    r"|masked_bias|relative_position_index|embed_positions\.weights|final_logits_bias)$"
)
_CAUSAL_MASK = re.compile(r"(attn|attention)\.bias$")


def ties_embeddings(config: Mapping[str, Any]) -> bool:
    """Return whether config.json (or its text_config) ties the head to the embedding."""
    return bool(_says_tied(config))


def says_untied(config: Mapping[str, Any]) -> bool:
    """Return whether config.json says that the head is not tied to the embedding."""
    return _says_tied(config) is False


def find_tensor(source: Source, name: str) -> Tensor | None:
    """Return the tensor of a name, or the one that it is tied to; None if there is neither.

    A missing head, or a missing embedding of an encoder or decoder, is tied to the model's
    embedding unless config.json says that it is not. A missing ``decoder.bias`` is tied to the
    ``bias`` above it.
    """
    found = source.tensors.get(name)
    if found is not None:
        return found
    if _HEAD_BIAS.search(name):
        return source.tensors.get(name.removesuffix("decoder.bias") + "bias")
    shares = is_head(name) or is_embedding(name)
    if not shares or says_untied(source.config):
        return None
    embeddings = [tensor for key, tensor in source.tensors.items() if is_embedding(key)]
    return embeddings[0] if len(embeddings) == 1 else None


def is_head(name: str) -> bool:
    """Return whether a tensor is a head over the vocabulary, by its name."""
    return bool(_HEAD.search(name))


def is_embedding(name: str) -> bool:
    """Return whether a tensor is an embedding of the vocabulary, by its name."""
    return bool(_EMBEDDING.search(name))


def is_tied_copy(source: Source, name: str) -> bool:
    """Return whether a tensor is a head that its model ties to the embedding and may leave out."""
    return is_head(name) and ties_embeddings(source.config)


def own_head(source: Source) -> str | None:
    """Return the head over the vocabulary of a model whose config.json says that it is not tied."""
    if not says_untied(source.config):
        return None
    found = [n for n, t in source.tensors.items() if is_head(n) and len(t.shape) == 2]
    embeddings = [t.shape[0] for n, t in source.tensors.items() if is_embedding(n)]
    outside = [n for n in found if source.tensors[n].shape[0] in embeddings]
    return outside[0] if len(outside) == 1 else None


def is_computed(tensor: Tensor) -> bool:
    """Return whether a tensor is a buffer that transformers computes, and seldom saves."""
    mask = len(tensor.shape) == 4 and _CAUSAL_MASK.search(tensor.name)
    return bool(mask or _COMPUTED.search(tensor.name))


def _says_tied(config: Mapping[str, Any]) -> bool | None:
    text = config.get("text_config")
    nested = text.get("tie_word_embeddings") if isinstance(text, Mapping) else None
    found = config.get("tie_word_embeddings", nested)
    return None if found is None else bool(found)
