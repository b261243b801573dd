"""The tokenizers and chat templates that a recipe needs before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from resumerge.errors import InputError, Problem
from resumerge.recipe.types import OF_PROMPTS, ModelRef, Recipe
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.types import Source
from resumerge.tokenizers.origin import has_tokenizer
from resumerge.tokenizers.vocabulary import Vocabulary, read_chat_template, read_vocabulary


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers and chat templates that were read for a recipe.

    Args:
        vocabularies: the vocabulary of every model, if the recipe has ``tokenizer``; the base's,
            for a mixture whose gates are made of prompts; else empty.
        templates: the chat template of every merged model; empty unless one has to be chosen.
        without: the models that have no tokenizer.
        assumed: for each model without a tokenizer whose vocabulary is needed, the model that the
            vocabulary is taken from.
    """

    vocabularies: Mapping[ModelRef, Vocabulary] = field(default_factory=dict)
    templates: Mapping[ModelRef, str | None] = field(default_factory=dict)
    without: frozenset[ModelRef] = frozenset()
    assumed: Mapping[ModelRef, ModelRef] = field(default_factory=dict)


def read_tokenizers(
    recipe: Recipe,
    sources: Mapping[ModelRef, Source],
    metadata: MetadataCache | None = None,
    *,
    offline: bool = False,
) -> Tokenizers:
    """Read what the recipe's ``tokenizer``, ``chat_template`` and prompts need.

    A model without a tokenizer is taken to have the reference's vocabulary (same as mergekit 0.1.5,
    observed), or if the reference has none either, that of the model whose tokenizer is asked for.

    Args:
        recipe: the recipe.
        sources: every model of the recipe, opened.
        metadata: the metadata cache of remote files.
        offline: do not use the network.

    Raises:
        InputError: a tokenizer is missing or damaged; the error has all problems of all models.
        Resumable: the network failed.
    """
    without = frozenset(ref for ref, source in sources.items() if not has_tokenizer(source))
    problems: list[Problem] = []
    vocabularies: dict[ModelRef, Vocabulary] = {}
    assumed: dict[ModelRef, ModelRef] = {}
    for ref, source in sources.items() if recipe.tokenizer else ():
        stand_in = _stand_in(recipe, without) if ref in without else None
        if stand_in is not None and recipe.tokenizer and recipe.tokenizer.source != ref:
            assumed[ref] = stand_in
            continue
        try:
            vocabularies[ref] = read_vocabulary(source, metadata, offline=offline)
        except InputError as error:
            problems += error.problems
    if _has_prompts(recipe):
        first = _first(recipe)
        if first in without:
            raise InputError([_prompts_alone(recipe, first)])
        vocabularies[first] = read_vocabulary(sources[first], metadata, offline=offline)
    if problems:
        raise InputError(problems)
    vocabularies |= {ref: vocabularies[stand_in] for ref, stand_in in assumed.items()}
    asked = recipe.merged_models if recipe.chat_template == "auto" else ()
    templates = {ref: read_chat_template(sources[ref], metadata, offline=offline) for ref in asked}
    wanted = recipe.chat_template if recipe.chat_template != "auto" else any(templates.values())
    first = _first(recipe)
    if wanted and not recipe.tokenizer and first in without:
        raise InputError([_template_alone(recipe, first)])
    return Tokenizers(vocabularies, templates, without, assumed)


def _first(recipe: Recipe) -> ModelRef:
    """Return the reference, which gives the tokenizer if the recipe says nothing else."""
    return recipe.base_model or recipe.merged_models[0]


def _has_prompts(recipe: Recipe) -> bool:
    """Return whether the gates of a mixture are made of prompts."""
    return recipe.mixture is not None and recipe.mixture.gate_mode in OF_PROMPTS


def _stand_in(recipe: Recipe, without: frozenset[ModelRef]) -> ModelRef | None:
    """Return the model whose vocabulary models without one are taken to have."""
    named = recipe.tokenizer.source if recipe.tokenizer else None
    candidates = [_first(recipe), *([named] if isinstance(named, ModelRef) else [])]
    return next((ref for ref in candidates if ref not in without), None)


def _template_alone(recipe: Recipe, first: ModelRef) -> Problem:
    return recipe.problem(
        f"The chat template needs a tokenizer, but {first} has none",
        "chat_template",
        expected=f"tokenizer.json beside the weights of {first}, whose tokenizer the output gets",
        found="no tokenizer files",
        fix="save the tokenizer into the model's folder, or delete chat_template",
    )


def _prompts_alone(recipe: Recipe, first: ModelRef) -> Problem:
    return recipe.problem(
        f"Prompts need a tokenizer, but {first} has none",
        "base_model",
        expected=f"tokenizer.json beside the weights of {first}",
        found="no tokenizer files",
        fix="save the tokenizer into the model's folder; or write 'gate_mode: random' and train "
        "the gates",
    )
