"""Plans a mixture of experts that is made from dense models."""

from __future__ import annotations

from collections.abc import Mapping

from resumerge.experts.upcycling import mix
from resumerge.layout.model_views import ModelViews
from resumerge.planning.plan import Plan
from resumerge.planning.reference_files import notes_on_quantisation
from resumerge.planning.shards import pack
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.types import Mixture
from resumerge.sources.types import Source, left_out_tensors
from resumerge.tokenizers.required import Tokenizers


def plan_mixture(
    recipe: Recipe,
    mixture: Mixture,
    sources: Mapping[ModelRef, Source],
    tokenizers: Tokenizers,
    *,
    seed: int,
    shard_size: int,
) -> Plan:
    """Plan a mixture of experts that is made from dense models.

    Args:
        recipe: the recipe of the mixture, which names a base model.
        mixture: the experts and gates, from the recipe's `mixture`.
        sources: every model that the recipe names, opened and numbered.
        tokenizers: the tokenizers for the gates' prompts; empty if there are no prompts.
        seed: the seed of random gates and noise.
        shard_size: the most bytes of tensors in a shard, unless a single tensor is larger.

    Raises:
        InputError: the mixture cannot be made; holds every problem that was found.
    """
    assert recipe.base_model is not None
    models = ModelViews(sources, recipe.base_model)
    made_mixture, targets, notes, left_out = mix(recipe, mixture, models, tokenizers, seed=seed)
    notes = [*notes, *notes_on_quantisation(sources[recipe.base_model])]
    units, shards = pack(targets, shard_size)
    return Plan(
        recipe=recipe,
        sources=tuple(sources.values()),
        reference=sources[recipe.base_model].number,
        layers=models.layers[recipe.base_model],
        layer_maps=(),
        units=units,
        shards=shards,
        seed=seed,
        shard_size=shard_size,
        notes=tuple(dict.fromkeys(notes)),
        tokenizers={ref.text: v.digest for ref, v in tokenizers.vocabularies.items()},
        mixture=made_mixture,
        left_out=(*left_out, *left_out_tensors(sources.values())),
    )
