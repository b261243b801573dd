"""Checks that the reference has the config.json and the tokenizer that the output needs."""

from __future__ import annotations

from collections.abc import Mapping

from resumerge.config_json import model_type
from resumerge.errors import Problem
from resumerge.layout.model_views import ModelViews
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.index import read_config
from resumerge.sources.quantised import stated_quantisations
from resumerge.sources.tied_names import SCALING, scales_outputs
from resumerge.sources.types import Source
from resumerge.tokenizers.required import Tokenizers


def compare_configs(
    recipe: Recipe, models: ModelViews, *, flat: bool
) -> tuple[list[Problem], list[str]]:
    """Check that the reference has a config.json, because no library loads an output without it.

    Args:
        recipe: the recipe, which names the merged models.
        models: the models, one of which is the reference.
        flat: whether tensors are matched by name alone.

    Returns:
        The problems, and the notes.
    """
    reference = models.reference
    merged = dict.fromkeys([reference, *recipe.merged_models])
    without_config = [ref for ref in merged if not models.sources[ref].config]
    if flat or len(without_config) == len(merged):
        by_name = ["tensors are matched by name"] * flat
        if not models.sources[reference].single:
            end = by_name[0] if by_name else "no library can load it"
            return [], [f"no model has a config.json, so the output has none; {end}"]
        return [], by_name
    if reference in without_config:
        return reference_without_config(recipe, models.sources), []
    if problem := _other_scale(recipe, models):
        return [problem], []
    return [], [
        f"{ref} has no config.json: the one of {reference} is assumed" for ref in without_config
    ]


def _other_scale(recipe: Recipe, models: ModelViews) -> Problem | None:
    """Return a problem if some models scale their decoder's output, and others do not."""
    configs = {ref: models.sources[ref].config for ref in (models.reference, *recipe.merged_models)}
    scaling = {r: scales_outputs(c) for r, c in configs.items() if model_type(c) in SCALING}
    if len(set(scaling.values())) < 2:
        return None
    ours = scaling.get(models.reference)
    other = next(ref for ref, scales in scaling.items() if scales != ours)
    says = "{}: the decoder's output is {}scaled before the head".format
    return recipe.problem(
        f"The heads of {other} and {models.reference} do not mean the same",
        "models",
        expected="models that transformers treats alike; it derives the scale from "
        "tie_word_embeddings in config.json",
        found="; ".join(says(ref, "" if scales else "not ") for ref, scales in scaling.items()),
        fix="Merge models of the same version of this architecture",
    )


def notes_on_quantisation(reference: Source) -> list[str]:
    """Return notes on configs of the reference that wrongly say that its weights are quantised.

    The weights are plain, because a model with unreadable quantised weights was refused before.
    Training tools left the key in the config.
    """
    configs = {"config.json": reference.config}
    for name in reference.components:
        configs[f"{name}/config.json"] = read_config(reference.folder, f"{name}/config.json")
    return [
        f"the {name} of {reference.ref} says that its weights are quantised "
        f"({', '.join(methods)}), and they are not: the output's leaves that out"
        for name, config in configs.items()
        if (methods := list(dict.fromkeys(stated_quantisations(config))))
    ]


def reference_without_config(recipe: Recipe, sources: Mapping[ModelRef, Source]) -> list[Problem]:
    """Return a problem if the reference is open and has no config.json."""
    inputs = [i for slice_ in recipe.slices for i in slice_.inputs]
    reference = recipe.base_model or inputs[0].model
    if reference not in sources or sources[reference].config:
        return []
    with_config = [
        str(ref) for ref in recipe.merged_models if ref in sources and sources[ref].config
    ]
    path = next((i.path for i in inputs if i.model == reference), "base_model")
    have = (
        f"; {', '.join(with_config)} {'has' if len(with_config) == 1 else 'have'} one"
        if with_config
        else ""
    )
    problem = recipe.problem(
        f"{reference} has no config.json",
        "base_model" if recipe.base_model else path,
        expected="config.json in the base model, or in the first model if there is no base: the "
        "output gets it",
        found=f"none{have}",
        fix=f"Download the config.json of {reference}, or copy that of another model of the same "
        "architecture",
    )
    return [problem]


def reminder_of_tokenizer(recipe: Recipe, models: ModelViews, tokenizers: Tokenizers) -> list[str]:
    """Return a reminder if the output has a vocabulary but no tokenizer.

    An output of a single weight file needs no tokenizer.
    """
    reference, without = models.reference, tokenizers.without
    if recipe.tokenizer or reference not in without or models.sources[reference].single:
        return []
    rows = models.vocabularies[reference].size
    if rows is None:
        return []
    with_tokenizer = [ref for ref in recipe.merged_models if ref not in without]
    fitting = [str(ref) for ref in with_tokenizer if models.vocabularies[ref].size == rows]
    if fitting:
        advice = f"write 'tokenizer_source: {fitting[0]}' to use the tokenizer of {fitting[0]}"
    else:
        advice = "save the tokenizer that it was trained with into the output folder"
    return [f"{reference} has no tokenizer, so the output has none: {advice}"]
