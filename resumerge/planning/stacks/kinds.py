"""Checks of the kinds of layers: attention and state space, dense and expert, and so on.

The output gets the reference's config.json. Every layer of the output must therefore be of a kind
that the reference has, at a position where config.json expects this kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resumerge.errors import Problem
from resumerge.layout import ModulePart, is_computed, layer_entries
from resumerge.layout.model_views import ModelViews
from resumerge.planning.mismatch import Mismatches
from resumerge.planning.plan import LayerMap
from resumerge.planning.slices import slice_of
from resumerge.planning.tensor_specs import guide_of
from resumerge.recipe import ModelRef, Module, Recipe
from resumerge.tensors import Tensor

Kind = frozenset[tuple[str, tuple[int, ...]]]
"""The kind of a layer: the names inside the layer and the shapes of its tensors."""


def compare_layers(
    recipe: Recipe, models: ModelViews, module: Module, part: ModulePart, mismatches: Mismatches
) -> None:
    """Record the tensors in which layers of other models differ from the reference's layers.

    A layer must have the same names and shapes as some layer of the reference. If no layer of the
    reference has them, the differences from the most similar layer are recorded.
    """
    assert part.stack is not None
    reference = models.reference
    by_kind = {_kind(layer): layer for layer in _layers(models, reference, part.stack).values()}
    for slice_ in module.slices:
        guide = guide_of(recipe, slice_)
        if guide.model == reference or guide.layer_range is None:
            continue
        guide_layers = _layers(models, guide.model, part.stack)
        for number in range(*guide.layer_range):
            layer = guide_layers.get(number, {})
            kind = _kind(layer)
            if kind in by_kind:
                continue
            nearest_kind = min(
                by_kind, key=lambda k: (len(by_kind[k].keys() ^ layer.keys()), len(k ^ kind))
            )
            nearest_layer = by_kind[nearest_kind]
            stack = models.stack_in(guide.model, part.stack)
            for name_in_layer in sorted(nearest_layer.keys() | layer.keys()):
                name = f"{stack}.{number}.{name_in_layer}"
                if name_in_layer not in layer:
                    mismatches.missing(guide, name, reference)
                elif name_in_layer not in nearest_layer:
                    mismatches.surplus(guide, name, reference)
                elif nearest_layer[name_in_layer].shape != layer[name_in_layer].shape:
                    mismatches.unlike(
                        guide, name, reference, nearest_layer[name_in_layer], layer[name_in_layer]
                    )


def _layers(models: ModelViews, ref: ModelRef, stack: str) -> dict[int, dict[str, Tensor]]:
    """Return the tensors of each layer of a model's stack, by their names inside the layer."""
    tensors, own_stack = models.sources[ref].tensors, models.stack_in(ref, stack)
    return {
        number: {
            name_in_layer: tensor
            for name_in_layer in names_in_layer
            if not is_computed(tensor := tensors[f"{own_stack}.{number}.{name_in_layer}"])
        }
        for number, names_in_layer in models.layer_tensors(ref, stack).items()
    }


def kinds_of(models: ModelViews, ref: ModelRef, stack: str) -> list[Kind]:
    """Return the kind of each layer of a model's stack. The stack is named as in the reference."""
    return [_kind(layer) for _, layer in sorted(_layers(models, ref, stack).items())]


def _kind(layer: Mapping[str, Tensor]) -> Kind:
    return frozenset((name_in_layer, tensor.shape) for name_in_layer, tensor in layer.items())


def check_kinds(
    recipe: Recipe, models: ModelViews, module: Module, part: ModulePart, layers: LayerMap
) -> Iterator[Problem]:
    """Check that each layer of the output is of the kind that config.json expects at its position.

    If config.json states the kinds, or the model class derives them by a known rule, they move with
    the layers and need no check. Otherwise the architecture derives the kind from a layer's number:
    after a few first layers, the kinds repeat with a period. The first layers and the period are
    inferred from the reference's layers, and the output must follow the same pattern.
    """
    assert part.stack is not None
    kinds = kinds_of(models, models.reference, part.stack)
    if len(set(kinds)) < 2 or _are_stated(models, layers, kinds):
        return
    refs = list(models.sources)
    layers_of = {ref: _layers(models, ref, part.stack) for ref in refs}
    expected_kinds = continued(kinds, len(layers.origins))
    for place, (origin, expected_kind) in enumerate(zip(layers.origins, expected_kinds)):
        model_number, layer = origin.inputs[0]
        chosen_kind = _kind(layers_of[refs[model_number]].get(layer, {}))
        # `compare_layers` reports a kind that no layer of the reference has.
        if chosen_kind != expected_kind and chosen_kind in kinds:
            yield _out_of_place(recipe, models, module, kinds, place, refs[model_number], layer)
            return


def continued(kinds: Sequence[Kind], count: int) -> list[Kind]:
    """Return the kinds of `count` layers that continue the pattern of the given kinds.

    The pattern is a beginning, and then a period that repeats. The period is the shortest that
    occurs at least twice at the end. If no period does, all layers together are the period.
    """
    for period in range(1, len(kinds) // 2 + 1):
        beginning_length = len(kinds) - period
        while (
            beginning_length > 0
            and kinds[beginning_length - 1] == kinds[beginning_length - 1 + period]
        ):
            beginning_length -= 1
        if len(kinds) - beginning_length >= 2 * period:
            return _extended(kinds, period, count)
    return _extended(kinds, len(kinds), count)


def _extended(kinds: Sequence[Kind], period: int, count: int) -> list[Kind]:
    extended_kinds = list(kinds[:count])
    while len(extended_kinds) < count:
        extended_kinds.append(extended_kinds[len(extended_kinds) - period])
    return extended_kinds


def _are_stated(models: ModelViews, layers: LayerMap, kinds: Sequence[Kind]) -> bool:
    """Return whether one setting in config.json, or all of them together, identify the kinds."""
    config = models.sources[models.reference].config
    for key in layers.keys:
        all_settings = layer_entries(config, key.split(".")[:-1], len(kinds)).values()
        repeating_settings = [
            setting for setting in all_settings if len(set(map(repr, setting))) < len(setting)
        ]
        if any(
            _tells(entries, kinds)
            for entries in [*repeating_settings, list(zip(*repeating_settings))]
        ):
            return True
    return False


def _tells(entries: Sequence[Any], kinds: Sequence[Kind]) -> bool:
    kind_of_entry: dict[str, Kind] = {}
    fits = all(kind_of_entry.setdefault(repr(e), kind) == kind for e, kind in zip(entries, kinds))
    return fits and len(kind_of_entry) > 1


def _out_of_place(
    recipe: Recipe,
    models: ModelViews,
    module: Module,
    kinds: Sequence[Kind],
    place: int,
    ref: Any,
    layer: int,
) -> Problem:
    letters: dict[Kind, str] = {}
    pattern = "".join(letters.setdefault(kind, chr(ord("A") + len(letters) % 26)) for kind in kinds)
    slice_ = slice_of(module, place)
    return recipe.problem(
        "config.json expects a different kind of layer at this position",
        f"{slice_.inputs[0].path}.layer_range",
        expected=f"layers in the order that {models.reference} has them, continued in the same "
        f"pattern: {pattern} (a letter for each kind)",
        found=f"layer {layer} of {ref} as layer {place} of the output",
        fix="Choose ranges that keep this order, such as whole periods of the pattern",
    )
