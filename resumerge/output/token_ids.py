"""Updates of vocabulary size and token ids in config.json and generation_config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from resumerge.layout.vocabulary_tensors import VOCABULARY_SIZE
from resumerge.tokenizers.output_vocabulary import OutputVocabulary

_FROM_HOST = ("bos_token_id", "eos_token_id", "pad_token_id")
"""The keys whose values are taken from the config of the model that the tokenizer belongs to."""

_TOKEN_IDS = re.compile(r".*_token_ids?|.*_token_index|(begin_)?suppress_tokens")


def remap_token_ids(
    config: Mapping[str, Any], vocabulary: OutputVocabulary, host: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a config of the reference model with the output's vocabulary size and token ids.

    ``vocab_size`` (under any of its names) becomes the output's number of rows wherever it equals
    the reference's number. If the tokenizer belongs to another model (the host), bos, eos and pad
    ids are copied from the host's config, where it has them. Every other token id becomes the
    output's id of the same token. If the output does not have this token, the id of the host's
    config is used.

    Args:
        config: the reference model's config.json or generation_config.json.
        vocabulary: the vocabulary of the output, which knows those of the reference and the host.
        host: the content of the same file of the host, the model whose tokenizer the output has;
            empty if the host has no such file.
    """
    tokens = {number: token for token, number in vocabulary.reference.ids.items()}
    is_other_host = vocabulary.host is not vocabulary.reference
    host_ids = {key: host[key] for key in _FROM_HOST if is_other_host and host.get(key) is not None}
    result: dict[str, Any] = {}
    for key, value in config.items():
        host_value = host.get(key)
        if isinstance(value, Mapping):
            host_section = host_value if isinstance(host_value, Mapping) else {}
            result[key] = remap_token_ids(value, vocabulary, host_section)
        elif VOCABULARY_SIZE.fullmatch(key) and value == vocabulary.reference_rows:
            result[key] = vocabulary.rows
        elif key in host_ids:
            result[key] = host_ids[key]
        elif _TOKEN_IDS.fullmatch(key) and is_other_host:
            result[key] = _token_id(value, tokens, vocabulary, host_value)
        else:
            result[key] = value
    has_ids = any(key in config for key in _FROM_HOST)
    return result | host_ids if has_ids else result


def _token_id(
    value: Any, tokens: Mapping[int, str], vocabulary: OutputVocabulary, host_value: Any
) -> Any:
    if isinstance(value, list):
        ids_in_output = [_token_id(item, tokens, vocabulary, None) for item in value]
        known_ids = [number for number in ids_in_output if number is not None]
        return known_ids if known_ids or not isinstance(host_value, list) else host_value
    if type(value) is not int or value < 0:
        return value
    token = tokens.get(value)
    return vocabulary.ids.get(token, host_value) if token is not None else host_value
