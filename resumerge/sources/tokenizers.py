"""The tokenizers that a recipe needs before anything is computed; none where it asks for none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from resumerge.errors import InputError, Problem
from resumerge.recipe.model import ModelRef, Recipe
from resumerge.sources.model import Source
from resumerge.sources.records import Records
from resumerge.sources.vocabulary import Vocabulary, read_chat_template, read_vocabulary


@dataclass(frozen=True)
class Tokenizers:
    """What was read of them.

    Args:
        vocabularies: of every model; empty where the recipe has no ``tokenizer``.
        templates: the chat template of every merged model; empty unless one is to be chosen.
    """

    vocabularies: Mapping[ModelRef, Vocabulary] = field(default_factory=dict)
    templates: Mapping[ModelRef, str | None] = field(default_factory=dict)


def read_tokenizers(
    recipe: Recipe,
    sources: Mapping[ModelRef, Source],
    records: Records | None = None,
    *,
    offline: bool = False,
) -> Tokenizers:
    """Read what the recipe's ``tokenizer`` and ``chat_template`` need.

    Args:
        records: what is known of files of the Hub.

    Raises:
        InputError: all that is wrong with them.
        Resumable: the network failed.
    """
    problems: list[Problem] = []
    vocabularies: dict[ModelRef, Vocabulary] = {}
    for ref, source in sources.items() if recipe.tokenizer else ():
        try:
            vocabularies[ref] = read_vocabulary(source, records, offline=offline)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    asked = recipe.merged_models if recipe.chat_template == "auto" else ()
    return Tokenizers(
        vocabularies,
        {ref: read_chat_template(sources[ref], records, offline=offline) for ref in asked},
    )
