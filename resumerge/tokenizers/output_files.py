"""Makes the output's tokenizer files from one model's tokenizer, the host, and the added tokens.

If no token is added, the files are the host's, byte for byte. The ids of the host's tokens never
change: new tokens follow its last token. A plain token of another model is added to the vocabulary
so that its id can be decoded, but text is still split as the host splits it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from resumerge.sources import MetadataCache, Source, fetch, list_companions
from resumerge.sources.companions import is_chat_template, is_tokenizer_file
from resumerge.tokenizers.companion_content import companion
from resumerge.tokenizers.origin import tokenizer_part
from resumerge.tokenizers.output_vocabulary import OutputVocabulary
from resumerge.tokenizers.vocabulary import (
    CONFIG,
    TOKENIZER,
    added_tokens_decoder,
    read_json,
)

_SCORE_GAP = 1000.0
"""The difference between a Unigram host's lowest score and the score of an added piece."""

_CONSISTENT = (TOKENIZER, CONFIG, "special_tokens_map.json", "added_tokens.json")
"""The files that are adjusted to new tokens: tokenizer.json, and files that repeat parts of it."""


def tokenizer_files(
    reference: Source,
    vocabulary: OutputVocabulary | None,
    chat_template: str | None,
    metadata: MetadataCache,
    *,
    offline: bool = False,
) -> Iterator[tuple[str, bytes | Path]]:
    """Yield each tokenizer file of the output: its name, and its bytes or the file to copy.

    Args:
        reference: the model whose tokenizer the output gets if `vocabulary` is None.
        vocabulary: the output's vocabulary; None if the recipe requests none.
        chat_template: the output's template in Jinja; None to keep the tokenizer's template.
        metadata: the metadata cache of remote files.
        offline: do not use the network.
    """
    host = vocabulary.host.source if vocabulary else tokenizer_part(reference)
    names = [n for n in list_companions(host) if is_tokenizer_file(n)]
    fetch(host, names, metadata, offline=offline)
    changed_files: dict[str, dict[str, Any]] = {}
    if vocabulary is not None and vocabulary.new:
        changed_files = _with_new_tokens(host, names, vocabulary)
        if any(token.definition is None for token in vocabulary.new):
            names = [n for n in names if n in _CONSISTENT or is_chat_template(n)]
    if chat_template is not None:
        names = [n for n in names if not is_chat_template(n)]
        tokenizer_config = changed_files.get(CONFIG) or _read(host, names, CONFIG)
        changed_files[CONFIG] = {**tokenizer_config, "chat_template": chat_template}
    for name in sorted({*names, *changed_files}):
        yield (
            name,
            _text(name, changed_files[name]) if name in changed_files else companion(host, name),
        )


def _with_new_tokens(
    host: Source, names: list[str], vocabulary: OutputVocabulary
) -> dict[str, dict[str, Any]]:
    new_tokens = {t.content: t for t in vocabulary.new if t.definition is not None}
    changed_files = {TOKENIZER: extended_tokenizer(vocabulary)}
    if "added_tokens.json" in names:
        added_tokens = _read(host, names, "added_tokens.json")
        changed_files["added_tokens.json"] = {
            **added_tokens,
            **{c: t.id for c, t in new_tokens.items()},
        }
    tokenizer_config = _read(host, names, CONFIG)
    if tokenizer_config.get("added_tokens_decoder") is not None:
        decoder = dict(added_tokens_decoder(tokenizer_config, host.folder / CONFIG))
        decoder |= {str(t.id): _definition(t.content, t.definition) for t in new_tokens.values()}
        changed_files[CONFIG] = {**tokenizer_config, "added_tokens_decoder": decoder}
    return changed_files


def extended_tokenizer(vocabulary: OutputVocabulary) -> dict[str, Any]:
    """Return the host's tokenizer.json, extended by the new tokens."""
    tokenizer = vocabulary.host.facts()
    if any(token.definition is None for token in vocabulary.new):
        tokenizer["model"] = _extended_model(tokenizer["model"], vocabulary)
    tokenizer["added_tokens"] = [
        *(tokenizer.get("added_tokens") or []),
        *(
            {"id": token.id, **_definition(token.content, token.definition)}
            for token in vocabulary.new
            if token.definition is not None
        ),
    ]
    return tokenizer


def _extended_model(host: Mapping[str, Any], vocabulary: OutputVocabulary) -> dict[str, Any]:
    """Return the ``model`` of tokenizer.json with all tokens in its vocabulary, also added ones.

    A loader numbers the added tokens that are not in the vocabulary from its end. With all tokens
    in the vocabulary, every token keeps its id.
    """
    new_model = dict(host)
    host_vocabulary = new_model["vocab"]
    if isinstance(host_vocabulary, Mapping):
        new_model["vocab"] = {**host_vocabulary, **vocabulary.ids}
        if vocabulary.merges:
            host_merges = new_model.get("merges") or []
            use_texts = bool(host_merges) and isinstance(host_merges[0], str)
            new_merges = [" ".join(pair) if use_texts else list(pair) for pair in vocabulary.merges]
            new_model["merges"] = [*host_merges, *new_merges]
        return new_model
    new_score = min((score for _, score in host_vocabulary), default=0.0) - _SCORE_GAP
    by_number = {number: token for token, number in vocabulary.ids.items()}
    appended_pieces = [
        [by_number.get(number, f"<no token {number}>"), new_score]
        for number in range(len(host_vocabulary), max(by_number) + 1)
    ]
    new_model["vocab"] = [*host_vocabulary, *appended_pieces]
    return new_model


def _definition(content: str, definition: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**(definition or {}), "content": content}


def _read(host: Source, names: list[str], name: str) -> dict[str, Any]:
    return read_json(host, name) if name in names else {}


def _text(name: str, value: Mapping[str, Any]) -> bytes:
    indent = None if name == TOKENIZER else 2  # else it has hundreds of thousands of lines
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")  # JSON's own escape of a lone surrogate
