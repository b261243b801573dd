"""The tokenizers and chat templates that a recipe needs before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from resumerge.errors import InputError, Problem
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.recipe.types import ModelRef, Recipe
from resumerge.sources.companions import is_tokenizer_file
from resumerge.sources.hub.files import list_companions
from resumerge.sources.tokenizers.origin import tokenizer_part
from resumerge.sources.tokenizers.vocabulary import Vocabulary, read_chat_template, read_vocabulary
from resumerge.sources.types import Source


@dataclass(frozen=True)
class Tokenizers:
    """What was read for a recipe.

    Args:
        vocabularies: of every model; empty if the recipe has no ``tokenizer``.
        templates: the chat template of every merged model; empty unless one is to be chosen.
    """

    vocabularies: Mapping[ModelRef, Vocabulary] = field(default_factory=dict)
    templates: Mapping[ModelRef, str | None] = field(default_factory=dict)


def read_tokenizers(
    recipe: Recipe,
    sources: Mapping[ModelRef, Source],
    metadata: MetadataCache | None = None,
    *,
    offline: bool = False,
) -> Tokenizers:
    """Read what the recipe's ``tokenizer`` and ``chat_template`` need.

    Args:
        metadata: the metadata cache of Hub files.

    Raises:
        InputError: with all problems of all models.
        Resumable: the network failed.
    """
    problems: list[Problem] = []
    vocabularies: dict[ModelRef, Vocabulary] = {}
    for ref, source in sources.items() if recipe.tokenizer else ():
        try:
            vocabularies[ref] = read_vocabulary(source, metadata, offline=offline)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    asked = recipe.merged_models if recipe.chat_template == "auto" else ()
    templates = {ref: read_chat_template(sources[ref], metadata, offline=offline) for ref in asked}
    wanted = recipe.chat_template if recipe.chat_template != "auto" else any(templates.values())
    if wanted and not recipe.tokenizer:
        first = recipe.base_model or recipe.merged_models[0]
        if not _has_tokenizer(sources[first]):
            raise InputError([_template_alone(recipe, first)])
    return Tokenizers(vocabularies, templates)


def _has_tokenizer(source: Source) -> bool:
    names = filter(is_tokenizer_file, list_companions(tokenizer_part(source)))
    return any("chat_template" not in name for name in names)


def _template_alone(recipe: Recipe, first: ModelRef) -> Problem:
    return recipe.problem(
        f"The chat template needs a tokenizer, but {first} has none",
        "chat_template",
        expected=f"tokenizer.json beside the weights of {first}, whose tokenizer the result has",
        found="no tokenizer files",
        fix="save the tokenizer into the model's folder, or delete chat_template",
    )
