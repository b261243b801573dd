"""The vocabulary's size and the token ids in config.json and generation_config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from resumerge.layout.vocabulary_tensors import VOCABULARY_SIZE
from resumerge.tokenizers.output_vocabulary import OutputVocabulary

_FROM_HOST = ("bos_token_id", "eos_token_id", "pad_token_id")
"""The keys that are taken from the model that the tokenizer was made for."""

_TOKEN_IDS = re.compile(r".*_token_ids?|.*_token_index|(begin_)?suppress_tokens")


def remap_token_ids(
    config: Mapping[str, Any], vocabulary: OutputVocabulary, host: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a config of the reference model, made to fit the output's vocabulary.

    ``vocab_size`` (under any of its names) becomes the number of rows wherever it had the
    reference's number. Where the tokenizer is another model's (the host's), the tokens that begin,
    end and pad text are those of the host's config, if it has them. Other token ids become the
    output's ids of the same tokens or, where the output has no such token, those of the host's
    config.

    Args:
        config: the reference model's config.json or generation_config.json.
        vocabulary: the output's vocabulary.
        host: the same config of the model whose tokenizer the output has; empty if it has none.
    """
    tokens = {number: token for token, number in vocabulary.reference.ids.items()}
    other = vocabulary.host is not vocabulary.reference
    host_ids = {k: host[k] for k in _FROM_HOST if other and host.get(k) is not None}
    result: dict[str, Any] = {}
    for key, value in config.items():
        host_value = host.get(key)
        if isinstance(value, Mapping):
            below = host_value if isinstance(host_value, Mapping) else {}
            result[key] = remap_token_ids(value, vocabulary, below)
        elif VOCABULARY_SIZE.fullmatch(key) and value == vocabulary.reference_rows:
            result[key] = vocabulary.rows
        elif key in host_ids:
            result[key] = host_ids[key]
        elif _TOKEN_IDS.fullmatch(key) and other:
            result[key] = _token_id(value, tokens, vocabulary, host_value)
        else:
            result[key] = value
    has_ids = any(key in config for key in _FROM_HOST)
    return result | host_ids if has_ids else result


def _token_id(
    value: Any, tokens: Mapping[int, str], vocabulary: OutputVocabulary, host_value: Any
) -> Any:
    if isinstance(value, list):
        mapped = [_token_id(item, tokens, vocabulary, None) for item in value]
        kept = [number for number in mapped if number is not None]
        return kept if kept or not isinstance(host_value, list) else host_value
    if type(value) is not int or value < 0:
        return value
    token = tokens.get(value)
    return vocabulary.ids.get(token, host_value) if token is not None else host_value
