"""Tensors that a file may lack: tied to another tensor, or computed when the model is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from resumerge.config_json import model_type
from resumerge.sources.tied_names import (
    ALWAYS_TIED,
    is_embedding,
    states_tied,
    states_untied,
    tied_names,
)
from resumerge.sources.types import Source
from resumerge.tensors import Tensor

_HEAD = re.compile(
    r"(^|\.)(lm_head|embed_out|output|unembed|decoder|vocab_projector|generator_lm_head"
    r"|output_projection|pred_layer\.proj|lm_loss|lm_head\.out_proj)\.weight$"
    r"|^((model\.)?proj_out|head)\.weight$"
)
_HEAD_BIAS = re.compile(r"(^|\.)decoder\.bias$")
_COMPUTED = re.compile(
    r"(^|\.)(inv_freq|rotary_emb\..*|position_ids|token_type_ids|num_batches_tracked"
    r"|masked_bias|relative_position_index|embed_positions\.weights|final_logits_bias)$"
)
_CAUSAL_MASK = re.compile(r"(attn|attention)\.bias$")


def ties_embeddings(config: Mapping[str, Any]) -> bool:
    """Return whether config.json, or else a nested config, ties the head to the embedding."""
    return bool(states_tied(config))


def find_tensor(source: Source, name: str) -> Tensor | None:
    """Return the tensor of a name, or the tensor that it is tied to; None if neither exists.

    A missing head is tied to the model's embedding unless config.json states that it is not tied.
    The same rule holds for a missing embedding of an encoder or decoder. A missing ``decoder.bias``
    is tied to the ``bias`` of the layer around it.
    """
    stored_tensor = source.tensors.get(name)
    if stored_tensor is not None:
        return stored_tensor
    if _HEAD_BIAS.search(name):
        return source.tensors.get(name.removesuffix("decoder.bias") + "bias")
    if not (is_head(name) or is_embedding(name)):
        return None
    tied_name = tied_names(source.config, source.tensors).get(name)
    if tied_name is not None:
        return source.tensors[tied_name]
    if states_untied(source.config):
        return None
    embeddings = [tensor for key, tensor in source.tensors.items() if is_embedding(key)]
    return embeddings[0] if len(embeddings) == 1 else None


def is_head(name: str) -> bool:
    """Return whether a tensor is the weight of a language model's head, by its name."""
    return bool(_HEAD.search(name))


def is_tied_copy(source: Source, name: str) -> bool:
    """Return whether a tensor is a head that config.json ties to the embedding.

    A file may lack such a head.
    """
    kind = model_type(source.config)
    return is_head(name) and ties_embeddings(source.config) and kind not in ALWAYS_TIED


def untied_head(source: Source) -> str | None:
    """Return the name of the head of a model that does not tie it to the embedding.

    None if the head may be tied, or if not exactly one tensor can be the head.
    """
    if not states_untied(source.config) and model_type(source.config) not in ALWAYS_TIED:
        return None
    heads = [n for n, t in source.tensors.items() if is_head(n) and len(t.shape) == 2]
    row_counts = [t.shape[0] for n, t in source.tensors.items() if is_embedding(n)]
    candidates = [n for n in heads if source.tensors[n].shape[0] in row_counts]
    return candidates[0] if len(candidates) == 1 else None


def is_computed(tensor: Tensor) -> bool:
    """Return whether a tensor is a buffer that transformers computes and rarely saves."""
    mask = len(tensor.shape) == 4 and _CAUSAL_MASK.search(tensor.name)
    return bool(mask or _COMPUTED.search(tensor.name))
