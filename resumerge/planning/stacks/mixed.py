"""Notes on merged layers that differ in kind, but not in their tensors.

Layers with sliding and full attention, or with and without positions, have tensors of the same
names and shapes, but the output's config.json can state only one kind. Other checks refuse layers
with different tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resumerge.layout import ModulePart, SourceLayer, mixed_settings
from resumerge.layout.model_views import ModelViews
from resumerge.planning.plan import LayerMap
from resumerge.recipe import Module
from resumerge.sizes import some


def notes_on_mixed_layers(models: ModelViews, layers: LayerMap) -> Iterator[str]:
    """Yield a note on each setting that differs between layers that slices merge into one."""
    inputs = [origin.inputs for origin in layers.origins]
    yield from _notes(models, layers.stack, inputs, "the first model of each slice")


def notes_on_mixed_models(models: ModelViews, module: Module, part: ModulePart) -> Iterator[str]:
    """Yield a note on each per-layer setting that differs between models merged as a whole."""
    refs = dict.fromkeys([models.reference, *(i.model for i in module.slices[0].inputs)])
    numbers = [models.sources[ref].number for ref in refs]
    for stack, count in models.layers[models.reference].counts.items():
        if any(name.startswith(f"{stack}.") for name in part.tensors):
            inputs = [[(number, layer) for number in numbers] for layer in range(count)]
            yield from _notes(models, stack, inputs, str(models.reference))


def _notes(
    models: ModelViews, stack: str, inputs: Sequence[Sequence[tuple[int, int]]], whose: str
) -> Iterator[str]:
    configs = {source.number: source.config for source in models.sources.values()}
    layers = [
        [SourceLayer(n, configs[n], layer) for n, layer in inputs_of_layer]
        for inputs_of_layer in inputs
    ]
    reference_layers = models.layers[models.reference]
    config = models.sources[models.reference].config
    keys, count = reference_layers.keys.get(stack, ()), reference_layers.counts[stack]
    for key, places in mixed_settings(config, keys, count, layers).items():
        yield (
            f"layers of different kinds are merged ({key}): the output's config.json says what "
            f"{whose} says; in {stack}.*: {some([str(place) for place in places])}"
        )
