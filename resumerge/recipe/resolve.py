"""The value of a parameter for one tensor, by scopes, filters and gradients.

The rules are mergekit's; each was observed by running mergekit 0.1.5 on small models.
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

    The parameters of the input, the slice, the module and the recipe are scopes, from the inside
    out. The value of the innermost scope that gives one applies. A scope gives none if it lacks the
    parameter, if no filter matches, or if its gradient is empty.

    The position t of a tensor (same as mergekit 0.1.5, observed): layer i of the n layers of a
    slice is at t = i / (n - 1), the only layer of a slice at t = 1; tensors before the layers
    belong to the first slice and tensors after them to the last, both at t = 0. A gradient in the
    recipe's scope starts again in every slice.

    Args:
        recipe: the recipe.
        name: the parameter's name.
        names: the tensor's names, one of which a filter must match. For a parameter of each model:
            the tensor's names in that model. For a parameter of the whole merge: the names in the
            output, where the layers of slices get new numbers (same as mergekit 0.1.5, observed).
        t: the tensor's position in its slice, from 0 to 1.
        slice_: the slice that the tensor belongs to.
        input_: the model, for a parameter that each model has; None for a parameter of the whole
            merge, which mergekit does not look up in a model's parameters.
        module: the module that the slice belongs to, if the recipe has modules.
        stepwise: take a gradient's entry at or before t instead of interpolating, as mergekit does
            with parameters that are true or false.

    Returns:
        None where no scope gives a value: the method's default applies.
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

    A filter's text must be a part of one of the tensor's names, in the same case. No filter and
    ``*`` match every tensor; other patterns are plain text.
    """
    part = condition.filter
    return part is None or part == "*" or any(part in name for name in names)


def interpolate(gradient: Sequence[float], t: float) -> float:
    """Return the value of a gradient at t in [0, 1], linear between its equally spaced entries.

    The value is computed in float64 as (1 - f) a + f b, bit for bit as in mergekit 0.1.5
    (observed).

    Raises:
        ValueError: t outside [0, 1], or an empty gradient.
    """
    index, fraction = _position(gradient, t)
    after = min(index + 1, len(gradient) - 1)
    return (1 - fraction) * gradient[index] + fraction * gradient[after]


def _position(gradient: Sequence[Scalar], t: float) -> tuple[int, float]:
    """Return the index of the entry at or before t, and the fraction on the way to the next one."""
    if not 0 <= t <= 1 or not gradient:
        raise ValueError(f"no value at t = {t} of a gradient with {len(gradient)} entries")
    scaled = t * (len(gradient) - 1)
    index = int(scaled)
    return index, scaled - index


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
