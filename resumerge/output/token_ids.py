"""config.json and generation_config.json after the vocabulary: its size, and tokens' numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from resumerge.planning.tokenizers.output_vocabulary import OutputVocabulary

_OF_THE_TOKENIZER = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Where text begins and ends is said by the model that the tokenizer was made for."""

_ONE_OR_MORE = re.compile(r".*_token_ids?|.*_token_index|(begin_)?suppress_tokens")


def renumbered(
    config: Mapping[str, Any], vocabulary: OutputVocabulary, host: Mapping[str, Any]
) -> dict[str, Any]:
    """A config of the reference model, made to fit the output's vocabulary.

    ``vocab_size`` becomes the number of rows wherever it was the reference's. Where the tokenizer
    is another model's, the tokens that begin, end and pad text are those that it was made to
    use: what the host's own config says, as far as it says so. Other numbers of tokens become those
    of the same tokens; where the output has no such token, what the host's own config says.

    Args:
        host: the same config of the model whose tokenizer the output has; empty if it has none.
    """
    tokens = {number: token for token, number in vocabulary.reference.ids.items()}
    other = vocabulary.host is not vocabulary.reference
    said = {k: host[k] for k in _OF_THE_TOKENIZER if other and host.get(k) is not None}
    result: dict[str, Any] = {}
    for key, value in config.items():
        beside = host.get(key)
        if isinstance(value, Mapping):
            below = beside if isinstance(beside, Mapping) else {}
            result[key] = renumbered(value, vocabulary, below)
        elif key == "vocab_size" and value == vocabulary.reference_rows:
            result[key] = vocabulary.rows
        elif key in said:
            result[key] = said[key]
        elif _ONE_OR_MORE.fullmatch(key) and other:
            result[key] = _number(value, tokens, vocabulary, beside)
        else:
            result[key] = value
    speaks = any(key in config for key in _OF_THE_TOKENIZER)
    return result | said if speaks else result


def _number(
    value: Any, tokens: Mapping[int, str], vocabulary: OutputVocabulary, beside: Any
) -> Any:
    if isinstance(value, list):
        mapped = [_number(item, tokens, vocabulary, None) for item in value]
        kept = [number for number in mapped if number is not None]
        return kept if kept or not isinstance(beside, list) else beside
    if type(value) is not int or value < 0:
        return value
    token = tokens.get(value)
    return vocabulary.ids.get(token, beside) if token is not None else beside
