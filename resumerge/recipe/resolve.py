"""The value of a parameter for one tensor, by scopes, filters and gradients.

The rules are those of mergekit. Each was observed by running mergekit 0.1.5 on small models.
"""

from __future__ import annotations

from collections.abc import Sequence

from resumerge.recipe.types import Conditional, Input, Module, Recipe, Scalar, Setting, Slice


def resolve(
    recipe: Recipe,
    name: str,
    *,
    names: Sequence[str],
    t: float,
    slice_: Slice,
    input_: Input | None = None,
    module: Module | None = None,
    stepwise: bool = False,
) -> Scalar | None:
    """Return the value of a parameter for one output tensor.

    The parameters of the input, the slice, the module and the recipe are scopes, from the innermost
    to the outermost. The innermost scope with a value decides. A scope has no value if it lacks the
    parameter, if no filter matches, or if its gradient is empty.

    The position t of a tensor is the same as in mergekit 0.1.5 (observed). Layer i of the n layers
    of a slice is at t = i / (n - 1); the only layer of a slice is at t = 1. Tensors before the
    layers belong to the first slice, tensors after the layers to the last slice, both at t = 0. A
    gradient in the recipe's scope starts again in every slice.

    Args:
        recipe: the recipe, whose own parameters are the outermost scope.
        name: the parameter's name, as the method declares it.
        names: the tensor's names; a filter must match one of them. For a parameter of each model,
            they are the tensor's names in that model. For a parameter of the whole merge, they are
            the names in the output, where the layers of slices have new numbers (same as mergekit
            0.1.5, observed).
        t: the tensor's position in its slice, from 0 to 1.
        slice_: the slice that the tensor belongs to, also if it is outside the layers.
        input_: the model, for a parameter that each model has; None for a parameter of the whole
            merge, which mergekit does not look up in a model's parameters.
        module: the module that the slice belongs to, if the recipe has modules.
        stepwise: whether a gradient's entry at or before t is the value, without interpolation, as
            in mergekit for parameters that are true or false.

    Returns:
        the value; None if no scope has a value, so that the method's default applies.
    """
    scopes = [slice_.parameters, *([module.parameters] if module else []), recipe.parameters]
    if input_ is not None:
        scopes.insert(0, input_.parameters)
    for parameters in scopes:
        if name in parameters:
            value = _value_at(parameters[name], names, t, stepwise)
            if value is not None:
                return value
    return None


def matches(condition: Conditional, names: Sequence[str]) -> bool:
    """Return whether a filter matches a tensor.

    A filter matches if its text is a part of one of the tensor's names; case matters. The filters
    None and ``*`` match every tensor. Any other pattern is plain text.
    """
    part = condition.filter
    return part is None or part == "*" or any(part in name for name in names)


def interpolate(gradient: Sequence[float], t: float) -> float:
    """Return the value of a gradient at t in [0, 1], linear between its equally spaced entries.

    The value is computed in float64 as (1 - f) a + f b. Its bits equal those of mergekit 0.1.5
    (observed).

    Raises:
        ValueError: t is outside [0, 1], or the gradient is empty.
    """
    index, fraction = _position(gradient, t)
    next_index = min(index + 1, len(gradient) - 1)
    return (1 - fraction) * gradient[index] + fraction * gradient[next_index]


def _position(gradient: Sequence[Scalar], t: float) -> tuple[int, float]:
    """Return the index of the entry at or before t, and the fraction of the way to the next."""
    if not 0 <= t <= 1 or not gradient:
        raise ValueError(f"no value at t = {t} of a gradient with {len(gradient)} entries")
    scaled_position = t * (len(gradient) - 1)
    index = int(scaled_position)
    return index, scaled_position - index


def _value_at(setting: Setting, names: Sequence[str], t: float, stepwise: bool) -> Scalar | None:
    if not isinstance(setting, tuple):
        return setting
    if not setting:
        return None
    gradient: list[Scalar] = []
    for entry in setting:
        if isinstance(entry, Conditional):
            if matches(entry, names):
                return _value_at(entry.value, names, t, stepwise)
        else:
            gradient.append(entry)
    if not gradient:
        return None
    numbers = [entry for entry in gradient if not isinstance(entry, str)]
    if stepwise or len(numbers) < len(gradient):  # words cannot be interpolated
        return gradient[_position(gradient, t)[0]]
    return interpolate(numbers, t)
