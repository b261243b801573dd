"""Compares the tensors of a planned output with the tensors that its config.json implies.

The other checks run before the output is planned. This check finds differences for which they have
no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resumerge.errors import Problem
from resumerge.layout import infer_layers, layer_entries, listed, split
from resumerge.layout.model_views import ModelViews
from resumerge.planning.plan import LayerMap
from resumerge.planning.stacks.config_lists import moved_config
from resumerge.planning.stacks.kinds import Kind, kinds_of
from resumerge.recipe import Recipe
from resumerge.tensors.target import Target


def check_implied(
    recipe: Recipe, models: ModelViews, maps: Sequence[LayerMap], targets: Sequence[Target]
) -> Iterator[Problem]:
    """Check that the output has as many layers as its config.json says, of the kinds it says.

    Args:
        recipe: the recipe, for the file and line of problems.
        models: the models; the config.json of the reference is compared.
        maps: the origins of the layers of each stack that slices choose.
        targets: the tensors of the output, each expert by its own name.
    """
    config = models.sources[models.reference].config
    for layers in maps:
        config = moved_config(models, layers, config)
    planned_shapes = {target.name: target.shape for target in targets}
    layer_counts = {**models.layers[models.reference].counts}
    layer_counts |= {layers.stack: len(layers.origins) for layers in maps}
    inferred_counts = infer_layers(planned_shapes, config).counts
    for stack, count in layer_counts.items():
        if config and maps and inferred_counts.get(stack) != count:
            yield _problem(
                recipe,
                f"{count} layers {stack}.*",
                f"{inferred_counts[stack]}" if stack in inferred_counts else "another number",
            )
    for layers in maps:
        yield from _check_layers(recipe, models, layers, config, planned_shapes)


def _check_layers(
    recipe: Recipe,
    models: ModelViews,
    layers: LayerMap,
    config: Mapping[str, Any],
    written: Mapping[str, tuple[int, ...]],
) -> Iterator[Problem]:
    """Compare each layer with the reference's layers that have the same settings in config.json."""
    reference_config = models.sources[models.reference].config
    kinds = kinds_of(models, models.reference, layers.stack)
    output_layers: list[dict[str, tuple[int, ...]]] = [{} for _ in layers.origins]
    for name, shape in written.items():
        numbered_name = split(name)
        if (
            numbered_name
            and numbered_name.stack == layers.stack
            and numbered_name.index < len(output_layers)
        ):
            output_layers[numbered_name.index][numbered_name.rest] = shape
    for key in layers.keys:
        path = key.split(".")[:-1]
        settings_before = _together(layer_entries(reference_config, path, len(kinds)), len(kinds))
        settings_after = _together(
            layer_entries(config, path, len(output_layers)), len(output_layers)
        )
        implied_kinds: dict[str, set[Kind]] = {}
        for entries, kind in zip(settings_before, kinds):
            implied_kinds.setdefault(entries, set()).add(kind)
        for place, (entries, output_layer) in enumerate(zip(settings_after, output_layers)):
            allowed_kinds = implied_kinds.get(entries)
            if allowed_kinds is None:
                continue
            shapes_in_layer = output_layer.items()
            if not any(kind <= shapes_in_layer for kind in allowed_kinds):
                nearest_kind = min(allowed_kinds, key=lambda kind: len(kind - shapes_in_layer))
                lacking_names = [
                    f"{layers.stack}.{place}.{name_in_layer}"
                    for name_in_layer, _ in nearest_kind - shapes_in_layer
                ]
                yield _problem(
                    recipe, listed(sorted(lacking_names)), "no such tensors of these shapes"
                )
                return


def _together(settings: Mapping[str, Sequence[Any]], count: int) -> list[str]:
    """Return one text for each layer, with the layer's value of every setting."""
    keys = sorted(settings)
    return [repr([settings[key][layer] for key in keys]) for layer in range(count)]


def _problem(recipe: Recipe, expected: str, found: str) -> Problem:
    return recipe.problem(
        "The output would not have the tensors that its config.json implies",
        "slices",
        expected=expected,
        found=found,
        fix="Choose ranges of layers that keep the number or the order of layers",
    )
