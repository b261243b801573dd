"""Checks whether the output's config.json can state what it says of each layer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from resumerge.errors import Problem
from resumerge.layout import SourceLayer, Unsaid, layer_entries, move_settings, section_of
from resumerge.layout.model_views import ModelViews
from resumerge.planning.plan import LayerMap
from resumerge.recipe import Module, Recipe, Slice

_BY_NUMBER = re.compile(r"(pattern|interval|period|every\w*)$")
_PATTERNS = {"layer_types", "block_types", "layers_block_type", "attn_layer_period"}
"""Settings that say what a layer is; numbers are not read beside them."""


def check_settings(
    recipe: Recipe, models: ModelViews, module: Module, layers: LayerMap
) -> Iterator[Problem]:
    """Check that config.json can state the settings of the output's layers."""
    reference = models.reference
    by_number = {source.number: source.config for source in models.sources.values()}
    config = models.sources[reference].config
    origins = [
        SourceLayer(model, by_number[model], layer)
        for model, layer in (origin.inputs[0] for origin in layers.origins)
    ]
    count = models.layers[reference].counts[layers.stack]
    if config and not layers.keys and len(origins) != count:
        yield recipe.problem(
            f"config.json of {reference} does not count the layers {layers.stack}.*",
            f"{module.slices[0].inputs[0].path}.layer_range",
            expected=f"a key with the number of layers ({count}), which becomes {len(origins)}",
            found="none",
            fix="Add it to the model's config.json, if its class reads one; or keep the number of "
            "layers",
        )
    unsaid = move_settings(config, layers.keys, count, origins)[1]
    if unsaid:
        yield _unsaid_problem(recipe, models, module, layers, unsaid)


def _unsaid_problem(
    recipe: Recipe, models: ModelViews, module: Module, layers: LayerMap, unsaid: list[Unsaid]
) -> Problem:
    """Return the problem of the first layer of the output that config.json cannot describe."""
    place = min(setting.place for setting in unsaid)
    refs = list(models.sources)
    source, layer = layers.origins[place].inputs[0]
    reference = models.reference
    keys = dict.fromkeys(key for setting in unsaid for key in (setting.keys or (setting.key,)))
    stated = [setting.found for setting in unsaid if setting.found]
    stated = stated or [f"model_type: {models.sources[reference].config.get('model_type')}"]
    return recipe.problem(
        "config.json expects a different kind of layer at this position",
        f"{slice_of(module, place).inputs[0].path}.layer_range",
        expected=f"layers in an order that {' and '.join(keys)} can state, as in {reference} "
        f"({', '.join(dict.fromkeys(stated))})",
        found=f"layer {layer} of {refs[source]} as layer {place} of the output",
        fix="Choose ranges that keep this order, such as whole periods of the pattern, counted "
        "from the first layer",
    )


def slice_of(module: Module, place: int) -> Slice:
    """Return the slice that a layer of the output comes from."""
    start = 0
    for slice_ in module.slices:
        first, stop = slice_.inputs[0].layer_range or (0, 0)
        start += stop - first
        if start > place:
            break
    return slice_


def rules_by_number(models: ModelViews, layers: LayerMap) -> Iterator[str]:
    """Yield what config.json says of layers by their number, once layers have changed theirs.

    Rules of known classes are not told: their settings move with the layers.
    """
    if layers.keeps_numbers:
        return
    config = models.sources[models.reference].config
    count = models.layers[models.reference].counts[layers.stack]
    for key in layers.keys:
        path = key.split(".")[:-1]
        if layer_entries(config, path, count).keys() & _PATTERNS:
            return
        for name, value in section_of(config, path).items():
            if _BY_NUMBER.search(name) and type(value) is int and value > 1:
                yield (
                    f"config.json's {name}: {value} selects layers by their number: it applies "
                    "to the new layer numbers of the output"
                )
