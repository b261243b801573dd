"""The output's tokenizer files: those of one model, the host, and the tokens that a recipe adds.

If no token is added, the files are the host's, byte for byte. Ids of the host's tokens never
change: new tokens follow its last one. A plain token of another model is added to the vocabulary,
so that its id can be decoded, but text is split as the host splits it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from resumerge.sources import MetadataCache, Source, fetch, list_companions
from resumerge.sources.companions import is_tokenizer_file
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
"""The distance of the score of a piece that is added to a Unigram model below the host's lowest."""

_CONSISTENT = (TOKENIZER, CONFIG, "special_tokens_map.json", "added_tokens.json")
"""Files that repeat parts of tokenizer.json, and can be kept consistent with it."""


def tokenizer_files(
    reference: Source,
    vocabulary: OutputVocabulary | None,
    chat_template: str | None,
    metadata: MetadataCache,
    *,
    offline: bool = False,
) -> Iterator[tuple[str, bytes | Path]]:
    """Yield every tokenizer file of the output: its name, and its bytes or the file to copy.

    Args:
        reference: the model that gives the tokenizer if there is no `vocabulary`.
        vocabulary: the output's vocabulary, if the recipe asks for one.
        chat_template: the output's template in Jinja; None to keep the tokenizer's.
        metadata: the metadata cache of remote files.
        offline: do not use the network.
    """
    host = vocabulary.host.source if vocabulary else tokenizer_part(reference)
    names = [n for n in list_companions(host) if is_tokenizer_file(n)]
    fetch(host, names, metadata, offline=offline)
    changed: dict[str, dict[str, Any]] = {}
    if vocabulary is not None and vocabulary.new:
        changed = _with_new_tokens(host, names, vocabulary)
        if any(token.definition is None for token in vocabulary.new):
            names = [n for n in names if n in _CONSISTENT or "chat_template" in n]
    if chat_template is not None:
        names = [n for n in names if "chat_template" not in n]
        config = changed.get(CONFIG) or _read(host, names, CONFIG)
        changed[CONFIG] = {**config, "chat_template": chat_template}
    for name in sorted({*names, *changed}):
        yield name, _text(name, changed[name]) if name in changed else companion(host, name)


def _with_new_tokens(
    host: Source, names: list[str], vocabulary: OutputVocabulary
) -> dict[str, dict[str, Any]]:
    added = {t.content: t for t in vocabulary.new if t.definition is not None}
    changed = {TOKENIZER: extended_tokenizer(vocabulary)}
    if "added_tokens.json" in names:
        listed = _read(host, names, "added_tokens.json")
        changed["added_tokens.json"] = {**listed, **{c: t.id for c, t in added.items()}}
    config = _read(host, names, CONFIG)
    if config.get("added_tokens_decoder") is not None:
        decoder = dict(added_tokens_decoder(config, host.folder / CONFIG))
        decoder |= {str(t.id): _definition(t.content, t.definition) for t in added.values()}
        changed[CONFIG] = {**config, "added_tokens_decoder": decoder}
    return changed


def extended_tokenizer(vocabulary: OutputVocabulary) -> dict[str, Any]:
    """Return the host's tokenizer.json with the new tokens in it."""
    facts = vocabulary.host.facts()
    if any(token.definition is None for token in vocabulary.new):
        facts["model"] = _extended_model(facts["model"], vocabulary)
    facts["added_tokens"] = [
        *(facts.get("added_tokens") or []),
        *(
            {"id": token.id, **_definition(token.content, token.definition)}
            for token in vocabulary.new
            if token.definition is not None
        ),
    ]
    return facts


def _extended_model(host: Mapping[str, Any], vocabulary: OutputVocabulary) -> dict[str, Any]:
    """Return the ``model`` of tokenizer.json with every token in its vocabulary, added ones too.

    All tokens keep their ids this way: a loader numbers added tokens that are not in the vocabulary
    from its end.
    """
    model = dict(host)
    host_vocabulary = model["vocab"]
    if isinstance(host_vocabulary, Mapping):
        model["vocab"] = {**host_vocabulary, **vocabulary.ids}
        if vocabulary.merges:
            host_merges = model.get("merges") or []
            texts = bool(host_merges) and isinstance(host_merges[0], str)
            pairs = [" ".join(pair) if texts else list(pair) for pair in vocabulary.merges]
            model["merges"] = [*host_merges, *pairs]
        return model
    lowest = min((score for _, score in host_vocabulary), default=0.0) - _SCORE_GAP
    by_number = {number: token for token, number in vocabulary.ids.items()}
    further = [
        [by_number.get(number, f"<no token {number}>"), lowest]
        for number in range(len(host_vocabulary), max(by_number) + 1)
    ]
    model["vocab"] = [*host_vocabulary, *further]
    return model


def _definition(content: str, definition: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**(definition or {}), "content": content}


def _read(host: Source, names: list[str], name: str) -> dict[str, Any]:
    return read_json(host, name) if name in names else {}


def _text(name: str, value: Mapping[str, Any]) -> bytes:
    indent = None if name == TOKENIZER else 2  # else it has hundreds of thousands of lines
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")  # JSON's own escape of a lone surrogate
