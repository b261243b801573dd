"""Per-layer settings of config.json. If they cannot move with the layers, the recipe is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resumerge.errors import Problem
from resumerge.layout import SourceLayer, Unstated, layer_entries, move_settings, section_at
from resumerge.layout.layer_rules import RULES, rules_of
from resumerge.layout.model_views import ModelViews
from resumerge.planning.plan import LayerMap
from resumerge.planning.slices import slice_of
from resumerge.recipe import Module, Recipe

_BY_NUMBER = re.compile(r"(pattern|interval|period|every\w*)$")
_FEATURES = re.compile(r"(feature|select)_layers?$")
_ENCODERS = re.compile(r"vision|audio|image|speech")
_OF_NUMBERS = {key for rules in RULES.values() for rule in rules for key in rule.keys}
"""Keys that the rules of model classes read."""
_PATTERNS = {"layer_types", "block_types", "layers_block_type", "attn_layer_period"}
"""Settings that state the kind of each layer; model classes then ignore keys of `_BY_NUMBER`."""


def check_settings(
    recipe: Recipe, models: ModelViews, module: Module, layers: LayerMap
) -> Iterator[Problem]:
    """Check that config.json can state the settings of the output's layers."""
    reference = models.reference
    config, origins = models.sources[reference].config, _origins(models, layers)
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
    yield from _check_features(recipe, models, module, layers)
    names_in_layers = {
        name_in_layer
        for names in models.layer_tensors(reference, layers.stack).values()
        for name_in_layer in names
    }
    unstated_settings = [
        setting
        for setting in move_settings(config, layers.keys, count, origins)[1]
        # A setting that is also stored as a tensor of the layer moves with the layer.
        if not any(name_in_layer.endswith(f".{setting.key}") for name_in_layer in names_in_layers)
    ]
    if unstated_settings:
        yield _unstated_problem(recipe, models, module, layers, unstated_settings)


def _check_features(
    recipe: Recipe, models: ModelViews, module: Module, layers: LayerMap
) -> Iterator[Problem]:
    """Check that no key selects an encoder's layer by its number, counted from the first layer.

    A number counted from the last layer (``vision_feature_layer: -2``) keeps its meaning.
    """
    config = models.sources[models.reference].config
    encoder_parts = {part for key in layers.keys for part in _ENCODERS.findall(key)}
    for key, value in config.items():
        values = value if isinstance(value, list) else [value]
        layer_numbers = [n for n in values if type(n) is int and n >= 0]
        is_selector = _FEATURES.search(key) and any(part in key for part in encoder_parts)
        loses_layers = not layers.keeps_numbers or max(layer_numbers, default=0) > len(
            layers.origins
        )
        if is_selector and layer_numbers and loses_layers:
            yield recipe.problem(
                f"{key} in config.json names layers {layers.stack}.* by their number",
                f"{module.slices[0].inputs[0].path}.layer_range",
                expected=f"layers that keep their numbers, or numbers from the end in {key}",
                found=f"{key}: {value}, and other layers at these places",
                fix="Slice the language model alone, or take the layers in their order from the "
                "first on",
            )


def moved_config(
    models: ModelViews, layers: LayerMap, config: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return config.json with its per-layer settings moved to the places of the output's layers."""
    count = models.layers[models.reference].counts[layers.stack]
    sections, _ = move_settings(config, layers.keys, count, _origins(models, layers))
    for path, section in sections.items():
        config = _replaced(config, path, section)
    return config


def _replaced(
    config: Mapping[str, Any], path: Sequence[str], section: Mapping[str, Any]
) -> Mapping[str, Any]:
    if not path:
        return section
    return {**config, path[0]: _replaced(config[path[0]], path[1:], section)}


def _origins(models: ModelViews, layers: LayerMap) -> list[SourceLayer]:
    configs = {source.number: source.config for source in models.sources.values()}
    first_origins = [origin.inputs[0] for origin in layers.origins]
    return [SourceLayer(model, configs[model], layer) for model, layer in first_origins]


def _unstated_problem(
    recipe: Recipe, models: ModelViews, module: Module, layers: LayerMap, unstated: list[Unstated]
) -> Problem:
    """Return the problem of the first layer of the output that config.json cannot describe."""
    place = min(setting.place for setting in unstated)
    refs = list(models.sources)
    model_number, layer = layers.origins[place].inputs[0]
    reference = models.reference
    keys = dict.fromkeys(key for setting in unstated for key in (setting.keys or (setting.key,)))
    stated_settings = [setting.found for setting in unstated if setting.found]
    stated_settings = stated_settings or [
        f"model_type: {models.sources[reference].config.get('model_type')}"
    ]
    return recipe.problem(
        "config.json expects a different kind of layer at this position",
        f"{slice_of(module, place).inputs[0].path}.layer_range",
        expected=f"layers in an order that {' and '.join(keys)} can state, as in {reference} "
        f"({', '.join(dict.fromkeys(stated_settings))})",
        found=f"layer {layer} of {refs[model_number]} as layer {place} of the output",
        fix="Choose ranges that keep this order, such as whole periods of the pattern, counted "
        "from the first layer",
    )


def notes_on_numbers(models: ModelViews, layers: LayerMap) -> Iterator[str]:
    """Yield a note on each key that selects layers by number, if layers change their numbers.

    Keys that a rule of a known class reads get no note, because their settings move with the
    layers.
    """
    if layers.keeps_numbers:
        return
    config = models.sources[models.reference].config
    count = models.layers[models.reference].counts[layers.stack]
    for key in layers.keys:
        path = key.split(".")[:-1]
        if layer_entries(config, path, count).keys() & _PATTERNS:
            return
        section = section_at(config, path)
        rules = rules_of(section, config, path)
        moving_keys = {name for rule in rules for name in rule.keys}
        if not section.get("use_sliding_window", True):
            moving_keys.add("max_window_layers")
        for name, value in section.items():
            selects_by_number = _BY_NUMBER.search(name) or (not rules and name in _OF_NUMBERS)
            if selects_by_number and name not in moving_keys and type(value) is int and value > 1:
                yield (
                    f"config.json's {name}: {value} selects layers by their number: it applies "
                    "to the new layer numbers of the output"
                )
