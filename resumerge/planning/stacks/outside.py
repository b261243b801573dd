"""The check for tensors outside the layers that contain one part for each layer.

Slices do not cut these tensors, which would therefore not fit the layers of the output.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from resumerge.errors import Problem
from resumerge.layout import ModulePart, is_bridge, listed, section_at, split
from resumerge.layout.model_views import ModelViews
from resumerge.planning.plan import LayerMap
from resumerge.recipe import Module, Recipe

_OF_LAYERS = re.compile(r"(^|[._])layer(?!_?norm|s?\.\d)")
_PARAMETER = re.compile(r"\.(weight|bias)$")
_CONVOLUTIONS = re.compile(r"conv|stem|patch")
_PERIOD = re.compile(r"(interval|period|every\w*|frequency)$")


def check_tensors_outside(
    recipe: Recipe, models: ModelViews, module: Module, part: ModulePart, layers: LayerMap
) -> Iterator[Problem]:
    """Check that no tensor outside the layers contains one part for each layer."""
    count = models.layers[models.reference].counts[layers.stack]
    if layers.keeps_numbers and len(layers.origins) == count:
        return
    range_path = f"{module.slices[0].inputs[0].path}.layer_range"
    for names, reason in _parts_of_layers(models, part, layers):
        yield recipe.problem(
            f"The layers of {models.reference} cannot be sliced: tensors outside them have a part "
            "for each layer",
            range_path,
            expected="tensors outside the layers that do not depend on the number of layers",
            found=f"{listed(names)}, {reason}",
            fix="Merge whole models with `models:` instead of `slices:`, or take every layer in "
            "its order",
        )


def _parts_of_layers(
    models: ModelViews, part: ModulePart, layers: LayerMap
) -> Iterator[tuple[list[str], str]]:
    """Yield (names of tensors, the reason why the tensors depend on the number of layers)."""
    reference = models.sources[models.reference]
    inferred_layers = models.layers[models.reference]
    count = inferred_layers.counts[layers.stack]
    outside_shapes = {
        name: reference.tensors[name].shape
        for name in part.tensors
        if inferred_layers.locate(name) is None and not name.startswith(f"{layers.stack}.")
    }
    sections = [section_at(reference.config, key.split(".")[:-1]) for key in layers.keys]
    config_numbers = {
        key: number
        for section in sections
        for key, number in section.items()
        if type(number) is int and number > 0
    }
    for key, width in config_numbers.items():
        if "per_layer" in key:
            wide_names = [
                name
                for name, shape in outside_shapes.items()
                if "per_layer" in name and width * count in shape
            ]
            if wide_names:
                yield wide_names, f"with {count} parts of {key}: {width}"
    names_with_rows = [
        name for name, shape in outside_shapes.items() if _has_rows_of_layers(name, shape, count)
    ]
    if names_with_rows:
        yield names_with_rows, f"with a row for each of the {count} layers"
    meaning_of_length = {count: f"{count} layers"} | {
        count // period: f"{key}: {period}"
        for key, period in config_numbers.items()
        if _PERIOD.search(key) and 1 < period < count
    }
    indices_by_stack: dict[str, set[int]] = defaultdict(set)
    for name in outside_shapes:
        numbered_name = split(name)
        if numbered_name is not None and not (is_bridge(name) or _CONVOLUTIONS.search(name)):
            indices_by_stack[numbered_name.stack].add(numbered_name.index)
    for stack, indices in indices_by_stack.items():
        is_gapless = max(indices) == len(indices) - 1
        is_sparse = not is_gapless and len(indices) > 2 and count // 2 <= max(indices) < count
        if (is_gapless and len(indices) in meaning_of_length) or is_sparse:
            names = [name for name in outside_shapes if name.startswith(f"{stack}.")]
            reason = meaning_of_length.get(len(indices), "by their numbers")
            yield names, f"which belong to layers ({reason})"


def check_shared_counts(
    recipe: Recipe, models: ModelViews, maps: Sequence[LayerMap]
) -> Iterator[Problem]:
    """Check that stacks whose length is one key of config.json have equal lengths in the output."""
    inferred_layers = models.layers[models.reference]
    output_lengths = {
        **inferred_layers.counts,
        **{layers.stack: len(layers.origins) for layers in maps},
    }
    for layers in maps:
        for stack, keys in inferred_layers.keys.items():
            shared_keys = sorted(set(keys) & set(layers.keys))
            if shared_keys and output_lengths[stack] != output_lengths[layers.stack]:
                yield recipe.problem(
                    f"{shared_keys[0]} in config.json counts two lists of layers",
                    "modules" if recipe.modules[0].name else "slices",
                    expected=f"{output_lengths[layers.stack]} layers {stack}.*, as many as "
                    f"{layers.stack}.*",
                    found=f"{output_lengths[stack]}",
                    fix="Take as many layers of both with `modules:`, or merge whole models",
                )


def _has_rows_of_layers(name: str, shape: tuple[int, ...], count: int) -> bool:
    if not shape or count < 3:
        return False
    name_fits = _OF_LAYERS.search(name) or not _PARAMETER.search(name)
    return bool(name_fits) and shape[0] in (count - 1, count, count + 1)
