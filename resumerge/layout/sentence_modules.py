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
    ours = models.sources[reference].modules
    for ref in recipe.merged_models:
        theirs = models.sources[ref].modules
        if ref == reference or (ours is None and theirs is None):
            continue
        if ours is None:
            yield (
                f"{ref} is a model of sentence-transformers, and {reference} is not: the output "
                f"has no {', '.join(theirs.types[1:]) if theirs else ''}"
            )
            continue
        yield from _differences(reference, ours, ref, theirs)


def lacks_sentence_module(models: ModelViews, ref: ModelRef, tensor: str) -> bool:
    """Return whether a tensor of the reference belongs to a module whose weights a model lacks."""
    folder, slash, _ = tensor.rpartition("/")
    ours, theirs = (models.sources[r].modules for r in (models.reference, ref))
    if not slash or ours is None or folder not in ours.stems:
        return False
    return theirs is None or folder not in theirs.stems


def _differences(
    reference: ModelRef, ours: SentenceModules, ref: ModelRef, theirs: SentenceModules | None
) -> Iterator[str]:
    only_ours = [path for path in ours.stems if theirs is None or path not in theirs.stems]
    if only_ours:
        yield f"{ref} has no weights of {', '.join(only_ours)}: the output has those of {reference}"
    if theirs is None:
        return
    if ours.types != theirs.types:
        yield (
            f"{ref} has the modules {', '.join(theirs.types)}: the output has those of "
            f"{reference}, {', '.join(ours.types)}"
        )
    for path, config in ours.configs.items():
        if path in theirs.configs and (keys := _unlike(config, theirs.configs[path])):
            yield (
                f"{path}/config.json of {ref} differs from that of {reference}, which the output "
                f"has: {'; '.join(keys)}"
            )


def _unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return a text for each value of a module's config that differs between two models.

    Keys that only one config has are not compared: a missing key has a default, which is unknown.
    """
    one, other = _plain(ours), _plain(theirs)
    return [
        f"{key} {theirs_} against {ours_}"
        for key in one.keys() & other.keys()
        if (ours_ := one[key]) != (theirs_ := other[key])
    ]


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a module's config with one key, ``pooling``, for all its ways of pooling tokens."""
    other_settings = {
        key: value for key, value in config.items() if not key.startswith("pooling_mode")
    }
    modes = config.get("pooling_mode")
    ways = modes if isinstance(modes, list) else [modes] if modes else []
    ways += [
        key.removeprefix(_MODES).removesuffix("_tokens").removesuffix("_token")
        for key, value in config.items()
        if key.startswith(_MODES) and value is True
    ]
    return (
        {**other_settings, "pooling": " and ".join(sorted(map(str, ways)))}
        if ways
        else other_settings
    )
