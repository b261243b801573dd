"""Reads the tokenizers and chat templates that planning needs for a recipe."""

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
        vocabularies: the vocabulary of every model, if the recipe has ``tokenizer``; only the
            reference's, for a mixture whose gates are computed from prompts; otherwise empty.
        templates: the chat template of every merged model, or None for a model without one; empty
            unless the recipe has ``chat_template: auto``.
        without: the models without a tokenizer, also if the recipe needs none.
        assumed: for each model without a tokenizer whose vocabulary is needed, the model whose
            vocabulary is assumed.
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
    """Read the tokenizers and templates for the recipe's tokenizer, chat_template and prompts.

    A model without a tokenizer is assumed to have the reference's vocabulary, as mergekit 0.1.5
    does (observed). If the reference has no tokenizer either, the vocabulary of the model that the
    recipe names as ``tokenizer`` is assumed.

    Args:
        recipe: the recipe, whose keys decide which tokenizers and templates are read.
        sources: the opened models of the recipe.
        metadata: the metadata cache of remote files; None for the default one.
        offline: do not use the network.

    Raises:
        InputError: a tokenizer is missing or damaged; the error lists the problems of all models.
        Resumable: the network failed.
    """
    refs_without_tokenizer = frozenset(
        ref for ref, source in sources.items() if not has_tokenizer(source)
    )
    problems: list[Problem] = []
    vocabularies: dict[ModelRef, Vocabulary] = {}
    assumed_by_ref: dict[ModelRef, ModelRef] = {}
    for ref, source in sources.items() if recipe.tokenizer else ():
        assumed_ref = (
            _assumed_model(recipe, refs_without_tokenizer)
            if ref in refs_without_tokenizer
            else None
        )
        if assumed_ref is not None and recipe.tokenizer and recipe.tokenizer.source != ref:
            assumed_by_ref[ref] = assumed_ref
            continue
        try:
            vocabularies[ref] = read_vocabulary(source, metadata, offline=offline)
        except InputError as error:
            problems += error.problems
    if _has_prompts(recipe):
        reference = _first(recipe)
        if reference in refs_without_tokenizer:
            raise InputError([_prompts_alone(recipe, reference)])
        vocabularies[reference] = read_vocabulary(sources[reference], metadata, offline=offline)
    if problems:
        raise InputError(problems)
    vocabularies |= {ref: vocabularies[assumed_ref] for ref, assumed_ref in assumed_by_ref.items()}
    models_with_templates = recipe.merged_models if recipe.chat_template == "auto" else ()
    templates = {
        ref: read_chat_template(sources[ref], metadata, offline=offline)
        for ref in models_with_templates
    }
    needs_template = (
        recipe.chat_template if recipe.chat_template != "auto" else any(templates.values())
    )
    reference = _first(recipe)
    if needs_template and not recipe.tokenizer and reference in refs_without_tokenizer:
        raise InputError([_template_alone(recipe, reference)])
    return Tokenizers(vocabularies, templates, refs_without_tokenizer, assumed_by_ref)


def _first(recipe: Recipe) -> ModelRef:
    """Return the reference: the base model, or else the first merged model."""
    return recipe.base_model or recipe.merged_models[0]


def _has_prompts(recipe: Recipe) -> bool:
    """Return whether the recipe is a mixture whose gates are computed from prompts."""
    return recipe.mixture is not None and recipe.mixture.gate_mode in OF_PROMPTS


def _assumed_model(recipe: Recipe, without: frozenset[ModelRef]) -> ModelRef | None:
    """Return the model whose vocabulary is assumed for models without a tokenizer; None if none."""
    tokenizer_model = recipe.tokenizer.source if recipe.tokenizer else None
    candidates = [
        _first(recipe),
        *([tokenizer_model] if isinstance(tokenizer_model, ModelRef) else []),
    ]
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
