"""Parameters resolved for each output tensor, and everything that is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from resumerge.errors import Problem
from resumerge.methods import METHODS, Method, Parameter, Value
from resumerge.recipe import Input, Recipe, Slice, resolve


class Parameters:
    """Resolves the parameters of one recipe; collects each problem once, not once a tensor."""

    def __init__(self, recipe: Recipe, method: Method) -> None:
        self._recipe = recipe
        self._method = method
        self._found: dict[tuple[str, str], Problem] = {}

    @property
    def problems(self) -> list[Problem]:
        """What was found wrong so far."""
        return list(self._found.values())

    def of_merge(self, slice_: Slice, tensor: str, t: float) -> dict[str, Value]:
        """The parameters that are given once for the merge."""
        return {
            p.name: self._value(p, slice_, None, tensor, t)
            for p in self._method.parameters
            if not p.per_model
        }

    def of_input(
        self, slice_: Slice, input_: Input, tensor: str, t: float, *, is_base: bool
    ) -> dict[str, Value]:
        """The parameters of one model; none of the base that task vectors are taken from."""
        if is_base and self._method.base != "none":
            return {}
        return {
            p.name: self._value(p, slice_, input_, tensor, t)
            for p in self._method.parameters
            if p.per_model
        }

    def _value(
        self, parameter: Parameter, slice_: Slice, input_: Input | None, tensor: str, t: float
    ) -> Value:
        raw = resolve(
            self._recipe,
            parameter.name,
            tensor=tensor,
            t=t,
            slice_=slice_,
            input_=input_,
            stepwise=parameter.kind == "bool",
        )
        place = f"{input_.path or slice_.path}.parameters" if input_ else "parameters"
        if raw is None:
            if not parameter.required:
                value: Value = parameter.default
                return value
            owner = f" for {input_.model}" if input_ else ""
            self._problem(
                place,
                parameter,
                f"The parameter {parameter.name!r} of {self._method.name} is missing{owner}",
                expected=f"{parameter.name}: {parameter.meaning}",
                found=f"no value for tensor {tensor}",
                fix=f"add `{parameter.name}:` under parameters"
                + (" of this model, or of the whole recipe" if input_ else ""),
            )
            return 0.0
        if parameter.kind == "bool":
            return bool(raw)
        try:
            number = float(raw)
        except ValueError:
            number = float("nan")
        whole = parameter.kind != "int" or number.is_integer()
        if not (whole and parameter.low <= number <= parameter.high):
            kind = "whole number" if parameter.kind == "int" else "number"
            self._problem(
                f"{place}.{parameter.name}",
                parameter,
                f"The parameter {parameter.name!r} is not a number it can be",
                expected=f"a {kind} from {parameter.low:g} to {parameter.high:g}",
                found=f"{raw!r} for tensor {tensor}",
                fix=f"write such a {kind}",
            )
        return number

    def _problem(self, path: str, parameter: Parameter, what: str, **facts: str) -> None:
        key = (path, parameter.name)
        if key not in self._found:
            self._found[key] = self._recipe.problem(what, path, **facts)


def unknown_parameters(recipe: Recipe, method: Method) -> tuple[list[Problem], list[str]]:
    """Names that the method does not have: problems, or notes for those of another method.

    mergekit ignores parameters that a method does not read; recipes that carry one over from
    another method go on working here. A name that no method has is a typing error.
    """
    own = {p.name for p in method.parameters}
    every = {p.name for other in METHODS.values() for p in other.parameters}
    problems: list[Problem] = []
    notes: list[str] = []
    for path, names in _places(recipe):
        for name in names:
            if name in own:
                continue
            if name in every:
                notes.append(f"{method.name} has no parameter {name!r}; it is ignored ({path})")
                continue
            near = difflib.get_close_matches(name, sorted(own | every), n=1)
            problems.append(
                recipe.problem(
                    f"Unknown parameter {name!r}",
                    f"{path}.{name}",
                    expected=", ".join(sorted(own)) or f"none: {method.name} has no parameters",
                    found=name,
                    fix=f"write {near[0]!r}" if near else "remove it",
                )
            )
    return problems, list(dict.fromkeys(notes))


def _places(recipe: Recipe) -> list[tuple[str, Mapping[str, object]]]:
    places: list[tuple[str, Mapping[str, object]]] = [("parameters", recipe.parameters)]
    for slice_ in recipe.slices:
        places.append((f"{slice_.path}.parameters", slice_.parameters))
        places += [(f"{i.path}.parameters", i.parameters) for i in slice_.inputs]
    return places
