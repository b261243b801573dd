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
    merged_refs = dict.fromkeys([reference, *recipe.merged_models])
    refs_without_config = [ref for ref in merged_refs if not models.sources[ref].config]
    if flat or len(refs_without_config) == len(merged_refs):
        match_notes = ["tensors are matched by name"] * flat
        if not models.sources[reference].single:
            consequence = match_notes[0] if match_notes else "no library can load it"
            return [], [f"no model has a config.json, so the output has none; {consequence}"]
        return [], match_notes
    if reference in refs_without_config:
        return reference_without_config(recipe, models.sources), []
    if problem := _other_scale(recipe, models):
        return [problem], []
    return [], [
        f"{ref} has no config.json: the one of {reference} is assumed"
        for ref in refs_without_config
    ]


def _other_scale(recipe: Recipe, models: ModelViews) -> Problem | None:
    """Return a problem if some models scale their decoder's output, and others do not."""
    configs = {ref: models.sources[ref].config for ref in (models.reference, *recipe.merged_models)}
    scales_by_ref = {r: scales_outputs(c) for r, c in configs.items() if model_type(c) in SCALING}
    if len(set(scales_by_ref.values())) < 2:
        return None
    reference_scales = scales_by_ref.get(models.reference)
    other_ref = next(ref for ref, scales in scales_by_ref.items() if scales != reference_scales)
    statement = "{}: the decoder's output is {}scaled before the head".format
    return recipe.problem(
        f"The heads of {other_ref} and {models.reference} do not mean the same",
        "models",
        expected="models that transformers treats alike; it derives the scale from "
        "tie_word_embeddings in config.json",
        found="; ".join(
            statement(ref, "" if scales else "not ") for ref, scales in scales_by_ref.items()
        ),
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
    names_with_config = [
        str(ref) for ref in recipe.merged_models if ref in sources and sources[ref].config
    ]
    reference_path = next((i.path for i in inputs if i.model == reference), "base_model")
    others_text = (
        f"; {', '.join(names_with_config)} {'has' if len(names_with_config) == 1 else 'have'} one"
        if names_with_config
        else ""
    )
    problem = recipe.problem(
        f"{reference} has no config.json",
        "base_model" if recipe.base_model else reference_path,
        expected="config.json in the base model, or in the first model if there is no base: the "
        "output gets it",
        found=f"none{others_text}",
        fix=f"Download the config.json of {reference}, or copy that of another model of the same "
        "architecture",
    )
    return [problem]


def reminder_of_tokenizer(recipe: Recipe, models: ModelViews, tokenizers: Tokenizers) -> list[str]:
    """Return a reminder if the output has a vocabulary but no tokenizer.

    An output of a single weight file needs no tokenizer.
    """
    reference, without_tokenizer = models.reference, tokenizers.without
    if recipe.tokenizer or reference not in without_tokenizer or models.sources[reference].single:
        return []
    row_count = models.vocabularies[reference].size
    if row_count is None:
        return []
    tokenizer_owners = [ref for ref in recipe.merged_models if ref not in without_tokenizer]
    fitting_names = [
        str(ref) for ref in tokenizer_owners if models.vocabularies[ref].size == row_count
    ]
    if fitting_names:
        advice = (
            f"write 'tokenizer_source: {fitting_names[0]}' to use the tokenizer of "
            f"{fitting_names[0]}"
        )
    else:
        advice = "save the tokenizer that it was trained with into the output folder"
    return [f"{reference} has no tokenizer, so the output has none: {advice}"]
