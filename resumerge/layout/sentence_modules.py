"""Differences between modules of sentence-transformers models. The output has the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.layout.model_views import ModelViews
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.types import SentenceModules

_MODES = "pooling_mode_"
"""The prefix of the keys that state in older versions how tokens are pooled."""


def notes_on_sentence_modules(recipe: Recipe, models: ModelViews) -> Iterator[str]:
    """Yield a sentence on each difference between the modules of a model and the reference's.

    Args:
        recipe: the recipe, which names the merged models.
        models: the models, one of which is the reference.
    """
    reference = models.reference
    reference_modules = models.sources[reference].modules
    for ref in recipe.merged_models:
        model_modules = models.sources[ref].modules
        if ref == reference or (reference_modules is None and model_modules is None):
            continue
        if reference_modules is None:
            yield (
                f"{ref} is a model of sentence-transformers, and {reference} is not: the output "
                f"has no {', '.join(model_modules.types[1:]) if model_modules else ''}"
            )
            continue
        yield from _differences(reference, reference_modules, ref, model_modules)


def lacks_sentence_module(models: ModelViews, ref: ModelRef, tensor: str) -> bool:
    """Return whether a tensor of the reference belongs to a module whose weights a model lacks."""
    folder, slash, _ = tensor.rpartition("/")
    reference_modules, model_modules = (models.sources[r].modules for r in (models.reference, ref))
    if not slash or reference_modules is None or folder not in reference_modules.stems:
        return False
    return model_modules is None or folder not in model_modules.stems


def _differences(
    reference: ModelRef, ours: SentenceModules, ref: ModelRef, theirs: SentenceModules | None
) -> Iterator[str]:
    missing_paths = [path for path in ours.stems if theirs is None or path not in theirs.stems]
    if missing_paths:
        yield (
            f"{ref} has no weights of {', '.join(missing_paths)}: "
            f"the output has those of {reference}"
        )
    if theirs is None:
        return
    if ours.types != theirs.types:
        yield (
            f"{ref} has the modules {', '.join(theirs.types)}: the output has those of "
            f"{reference}, {', '.join(ours.types)}"
        )
    for path, config in ours.configs.items():
        if differing_values := _differing_values(config, theirs.configs.get(path, {})):
            yield (
                f"{path}/config.json of {ref} differs from that of {reference}, which the output "
                f"has: {'; '.join(differing_values)}"
            )


def _differing_values(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return a text for each value of a module's config that differs between two models.

    Keys that only one config has are not compared: a missing key has a default, which is unknown.
    """
    our_values, their_values = _plain(ours), _plain(theirs)
    return [
        f"{key} {their_values[key]} against {value}"
        for key, value in our_values.items()
        if key in their_values and value != their_values[key]
    ]


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a module's config with one key, ``pooling``, for all its ways of pooling tokens."""
    settings = {key: value for key, value in config.items() if not key.startswith("pooling_mode")}
    stated_modes = config.get("pooling_mode") or []
    pooling_ways = [*stated_modes] if isinstance(stated_modes, list) else [stated_modes]
    pooling_ways += [
        key.removeprefix(_MODES).removesuffix("_tokens").removesuffix("_token")
        for key, value in config.items()
        if key.startswith(_MODES) and value is True
    ]
    if pooling_ways:
        settings["pooling"] = " and ".join(sorted(map(str, pooling_ways)))
    return settings
