"""Checks of slices: a base model, the right number of models, and layers that exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from resumerge.errors import Problem
from resumerge.layout import Layers, ModulePart
from resumerge.layout.model_views import ModelViews
from resumerge.methods import MergeMethod
from resumerge.recipe import Input, ModelRef, Module, Recipe, Slice
from resumerge.recipe.schema.layer_ranges import spelled_slices


def with_bases(recipe: Recipe, method: MergeMethod) -> tuple[Recipe, list[Problem]]:
    """Return the recipe with the base model among the inputs of every slice.

    mergekit 0.1.5, observed: a base that ``models`` does not list is added as the last input, for
    every method, but never to a slice. This function also adds it to a slice, if the method reads a
    base and all sources of the slice have the same layer range. If the method takes one model and
    no base, the recipe's base model is not an input, only the reference (mergekit refuses such a
    recipe).
    """
    problems: list[Problem] = []
    if _takes_one_model(method):
        return _without_bases(recipe), problems
    modules = []
    for module in recipe.modules:
        slices = tuple(
            _with_base(recipe, slice_, problems)
            if not module.stacked or method.base != "none"
            else slice_
            for slice_ in module.slices
        )
        modules.append(replace(module, slices=slices))
    return replace(recipe, modules=tuple(modules)), problems


def _takes_one_model(method: MergeMethod) -> bool:
    return method.most == 1 and method.base == "none"


def _without_bases(recipe: Recipe) -> Recipe:
    """Return the recipe without base models that were added as inputs."""
    modules = []
    for module in recipe.modules:
        slices = []
        for slice_ in module.slices:
            listed_inputs = tuple(i for i in slice_.inputs if not i.path.endswith("base_model"))
            slices.append(replace(slice_, inputs=listed_inputs))
        modules.append(replace(module, slices=tuple(slices)))
    return replace(recipe, modules=tuple(modules))


def _with_base(recipe: Recipe, slice_: Slice, problems: list[Problem]) -> Slice:
    base = base_of(recipe, slice_)
    if base is None or any(i.model == base for i in slice_.inputs):
        return slice_
    layer_ranges = {i.layer_range for i in slice_.inputs}
    if len(layer_ranges) > 1:
        problems.append(
            recipe.problem(
                "The recipe does not say which layers of the base model this slice uses",
                slice_.path,
                expected=f"{base} among the sources, with its layer_range",
                found="sources with different layer ranges, and no base model",
                fix=f"Add `- model: {base}` with its layer_range to the sources",
            )
        )
        return slice_
    base_input = Input(base, layer_range=layer_ranges.pop(), path=slice_.path)
    return replace(slice_, inputs=(*slice_.inputs, base_input))


def base_of(recipe: Recipe, slice_: Slice) -> ModelRef | None:
    """Return the base model of a slice: its own, or the recipe's; None if there is none."""
    return slice_.base_model or recipe.base_model


def merged_count(method: MergeMethod, inputs: Sequence[Input], base: ModelRef | None) -> int:
    """Return the number of models that is compared with a method's `fewest` and `most`."""
    return len(inputs) - (method.base == "optional" and any(i.model == base for i in inputs))


def check_inputs(recipe: Recipe, method: MergeMethod) -> Iterator[Problem]:
    """Check that every slice has a valid number of models, and a base if the method needs one."""
    for slice_ in recipe.slices:
        base = base_of(recipe, slice_)
        if method.base == "required" and base is None:
            yield recipe.problem(
                f"{method.name} needs a base model",
                "merge_method",
                expected="base_model: org/name",
                found="no base_model",
                fix="Add `base_model:` at the top level of the recipe",
            )
            return
        count = merged_count(method, slice_.inputs, base)
        if count < method.fewest or (method.most is not None and count > method.most):
            is_counted = method.base != "optional" and not _takes_one_model(method)
            counted_text = "counted" if is_counted else "not counted"
            is_exact = method.most == method.fewest
            expected_count = f"exactly {method.most}" if is_exact else f"at least {method.fewest}"
            yield recipe.problem(
                f"{method.name} takes {expected_count} model{'s' * (method.fewest != 1)}",
                slice_.path or "models",
                expected=f"{expected_count} (the base model {counted_text})",
                found=str(count),
                fix="Add or remove models, or choose another merge_method",
            )


def check_layers(
    recipe: Recipe, models: ModelViews, module: Module, part: ModulePart
) -> Iterator[Problem]:
    """Check that every model has the layers that a module uses."""
    if module.stacked:
        for input_ in (i for slice_ in module.slices for i in slice_.inputs):
            yield from _check_range(recipe, models, part, input_)
    else:
        yield from _check_counts(recipe, models, module, part)


def _check_range(
    recipe: Recipe, models: ModelViews, part: ModulePart, input_: Input
) -> Iterator[Problem]:
    layers = models.layers[input_.model]
    stack = models.stack_in(input_.model, part.stack) if part.stack else None
    assert input_.layer_range is not None
    start, stop = input_.layer_range
    if stack is None:
        yield _no_stack(recipe, input_, layers)
    elif stop > (count := layers.counts[stack]):
        yield recipe.problem(
            f"The layer range goes past the end of {input_.model}",
            f"{input_.path}.layer_range",
            expected=f"at most [0, {count}]: it has {count} layers",
            found=f"[{start}, {stop}]",
            fix=f"Write a range that ends at {count} or before",
        )


def _check_counts(
    recipe: Recipe, models: ModelViews, module: Module, part: ModulePart
) -> Iterator[Problem]:
    """Check that models that are merged whole have the same number of layers."""
    counts = models.layers[models.reference].counts
    stacks = [part.stack] if part.stack else []
    if part.stack == models.layers[models.reference].main:
        stacks = [stack for stack in counts if any(n.startswith(f"{stack}.") for n in part.tensors)]
    for input_ in module.slices[0].inputs:
        for stack in stacks:
            their_stack = models.stack_in(input_.model, stack)
            count = (
                models.layers[input_.model].counts[their_stack] if their_stack else counts[stack]
            )
            if count == counts[stack]:
                continue
            headline = f"{input_.model} and {models.reference} have different numbers of layers"
            expected_text = (
                f"{counts[stack]} layers {stack}.*, as in {models.reference}: layer i of each "
            )
            expected_text += "is merged"
            found_text = f"{count} in {input_.model}"
            if shape_difference := _unlike_layers(models, input_.model, stack, their_stack):
                yield recipe.problem(
                    headline,
                    input_.path or module.path,
                    expected=expected_text,
                    found=f"{found_text}; and {shape_difference}",
                    fix="Merge models whose layers have the same shapes: these cannot be sliced "
                    "or stacked together",
                )
                continue
            fewest_layers = min(count, counts[stack])
            layer_counts = ((models.reference, counts[stack]), (input_.model, count))
            merged_slices = spelled_slices(
                [[(str(m), (0, fewest_layers)) for m, _ in layer_counts]]
            )
            stacked_slices = spelled_slices([[(str(m), (0, n))] for m, n in layer_counts])
            yield recipe.problem(
                headline,
                input_.path or module.path,
                expected=expected_text,
                found=found_text,
                fix=f"To merge the first {fewest_layers} layers of each, write the first lines "
                "below in place of `models:`; to stack one model's layers on the other's, use the "
                "last lines as the recipe",
                paste=f"# the first {fewest_layers} layers of each, merged:\nslices:\n"
                f"{merged_slices}"
                f"# stacked:\nmerge_method: passthrough\nslices:\n{stacked_slices}",
            )


def _unlike_layers(models: ModelViews, ref: ModelRef, stack: str, their_stack: str | None) -> str:
    """Return text on a shape in a stack's first layer that differs from the reference's, or ""."""
    reference_tensors = models.sources[models.reference].tensors
    model_tensors = models.sources[ref].tensors
    for name, tensor in reference_tensors.items():
        name_in_layer = name.removeprefix(f"{stack}.0.")
        other_tensor = model_tensors.get(f"{their_stack}.0.{name_in_layer}")
        if (
            name_in_layer != name
            and other_tensor is not None
            and other_tensor.shape != tensor.shape
        ):
            shapes = (
                f"{list(tensor.shape)} in {models.reference} and "
                f"{list(other_tensor.shape)} in {ref}"
            )
            return f"{name_in_layer} of a layer is {shapes}"
    return ""


def _no_stack(recipe: Recipe, input_: Input, layers: Layers) -> Problem:
    stacks = ", ".join(f"{stack} ({n} layers)" for stack, n in layers.counts.items())
    return recipe.problem(
        f"The layers of {input_.model} cannot be sliced",
        f"{input_.path}.layer_range",
        expected="one numbered list of tensors, as long as config.json's layer count",
        found=f"several: {stacks}" if stacks else "none",
        fix="Write 'modules:' with 'slices:' or 'models:' for each part of the model"
        if stacks
        else "Merge whole models with `models:` instead of `slices:`",
    )


def slice_of(module: Module, place: int) -> Slice:
    """Return the slice that contains a layer of the output, by the layer's number."""
    layers_so_far = 0
    for slice_ in module.slices:
        first_layer, stop_layer = slice_.inputs[0].layer_range or (0, 0)
        layers_so_far += stop_layer - first_layer
        if layers_so_far > place:
            break
    return slice_
