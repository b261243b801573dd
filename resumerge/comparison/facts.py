"""The comparison of config.json and of the tokenizers' vocabularies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resumerge.comparison.models import Models, Pair
from resumerge.config_json import class_names
from resumerge.engine.context import RunContext
from resumerge.errors import InputError
from resumerge.tokenizers.origin import has_tokenizer
from resumerge.tokenizers.vocabulary import Vocabulary, read_vocabulary

EXAMPLES = 8
"""The most differing tokens that are named."""

_ABSENT = object()


def compared_configs(models: Models) -> dict[str, Any]:
    """Return whether architecture and config are the same, and each key that differs.

    Returns:
        `architectures`, the classes of each model; `same_architecture`; `same`; and `differences`,
        each with its dotted `key` and the `values` of all models, as JSON text, None where a model
        has no value.
    """
    flat_configs = [dict(_flat(source.config)) for source in models.sources]
    keys = list(dict.fromkeys(key for config in flat_configs for key in config))
    differences = [
        {"key": key, "values": [_text(config.get(key, _ABSENT)) for config in flat_configs]}
        for key in keys
        if any(
            config.get(key, _ABSENT) != flat_configs[0].get(key, _ABSENT) for config in flat_configs
        )
    ]
    class_names_of_models = [class_names(source.config) for source in models.sources]
    return {
        "architectures": class_names_of_models,
        "same_architecture": all(
            names == class_names_of_models[0] for names in class_names_of_models
        ),
        "same": not differences,
        "differences": differences,
    }


def read_vocabularies(context: RunContext, models: Models) -> list[Vocabulary | None]:
    """Return the vocabulary of each model; None, with a note, without a readable tokenizer.

    Raises:
        Resumable: the network failed.
    """
    vocabularies: list[Vocabulary | None] = []
    for source in models.sources:
        vocabulary = None
        if has_tokenizer(source):
            try:
                vocabulary = read_vocabulary(
                    source, context.metadata, offline=context.options.offline
                )
            except InputError as error:
                problem_texts = "; ".join(problem.what for problem in error.problems)
                context.reporter.note(
                    f"The tokenizer of {source.ref} is not compared: {problem_texts}"
                )
        vocabularies.append(vocabulary)
    return vocabularies


def compared_vocabularies(
    pair: Pair, vocabularies: Sequence[Vocabulary | None]
) -> dict[str, Any] | None:
    """Return the differences between the tokens of two models; None if a model has no tokenizer.

    Returns:
        `tokens`: the number of tokens of each model; `same`: whether all tokens have the same ids;
        `same_files`; `moved`: tokens of both models whose ids differ; `only_first` and
        `only_second`: the tokens that one model has; and whether one model extends the other: it
        has more tokens, and all tokens of the other with the same ids.
    """
    first_vocabulary, second_vocabulary = (vocabularies[number] for number in pair)
    if first_vocabulary is None or second_vocabulary is None:
        return None
    moved_tokens = [
        token
        for token, number in first_vocabulary.ids.items()
        if second_vocabulary.ids.get(token, number) != number
    ]
    only_in_first = [token for token in first_vocabulary.ids if token not in second_vocabulary.ids]
    only_in_second = [token for token in second_vocabulary.ids if token not in first_vocabulary.ids]
    return {
        "tokens": [len(first_vocabulary.ids), len(second_vocabulary.ids)],
        "same": not (moved_tokens or only_in_first or only_in_second),
        "same_files": first_vocabulary.digest == second_vocabulary.digest,
        "moved": {"count": len(moved_tokens), "examples": moved_tokens[:EXAMPLES]},
        "only_first": {"count": len(only_in_first), "examples": only_in_first[:EXAMPLES]},
        "only_second": {"count": len(only_in_second), "examples": only_in_second[:EXAMPLES]},
        "second_extends_first": bool(only_in_second) and not moved_tokens and not only_in_first,
        "first_extends_second": bool(only_in_first) and not moved_tokens and not only_in_second,
    }


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: object) -> str | None:
    return None if value is _ABSENT else json.dumps(value)
