"""Checks the parameters of a recipe, and resolves their values for each output tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from resumerge.errors import Problem
from resumerge.methods import METHODS, Method, Parameter, Value
from resumerge.methods.base import FLOAT32_MAX
from resumerge.planning.tensor_specs import TensorSpec
from resumerge.recipe import Conditional, Input, Recipe, Scalar, Setting, resolve
from resumerge.recipe.spelling import closest


@dataclass
class Parameters:
    """Resolves the parameters of one recipe; collects each problem once, not for each tensor.

    Args:
        valid: whether `check_parameters` found nothing.
    """

    recipe: Recipe
    method: Method
    valid: bool = True
    _found: dict[tuple[str, str], Problem] = field(default_factory=dict)

    @property
    def problems(self) -> list[Problem]:
        """What was found wrong so far."""
        return list(self._found.values())

    def of_merge(self, spec: TensorSpec) -> dict[str, Value]:
        """The parameters that are given once for the merge."""
        return {
            p.name: self._value(p, spec, None, spec.name)
            for p in self.method.parameters
            if not p.per_model
        }

    def of_input(
        self, spec: TensorSpec, input_: Input, name: str, *, is_base: bool
    ) -> dict[str, Value]:
        """The parameters of one model; empty for the base model of task vectors.

        Args:
            name: what the model calls the tensor.
        """
        if is_base and self.method.base != "none":
            return {}
        return {
            p.name: self._value(p, spec, input_, name)
            for p in self.method.parameters
            if p.per_model
        }

    def _value(
        self, parameter: Parameter, spec: TensorSpec, input_: Input | None, tensor: str
    ) -> Value:
        raw = resolve(
            self.recipe,
            parameter.name,
            tensor=tensor,
            t=spec.t,
            slice_=spec.slice_,
            input_=input_,
            module=spec.module,
            stepwise=parameter.kind == "bool",
        )
        if raw is None:
            if parameter.required:
                self._missing(parameter, spec, input_, tensor)
            value: Value = 0.0 if parameter.required else parameter.default
            return value
        if parameter.kind == "bool":
            return bool(raw)
        try:
            number = float(raw)
        except ValueError:
            number = float("nan")  # text, reported by check_parameters
        if parameter.kind == "int" and not number.is_integer():
            owner = f" of {input_.model}" if input_ else ""
            self._problem(
                next(path for path, _ in self._written(parameter.name, spec, input_)),
                parameter,
                f"The parameter {parameter.name!r}{owner} is not a whole number",
                expected=f"a whole number for every tensor ({parameter.meaning})",
                found=f"{number:g} for tensor {tensor}",
                fix="Write one whole number, or a gradient that gives whole numbers",
            )
        return number

    def _missing(
        self, parameter: Parameter, spec: TensorSpec, input_: Input | None, tensor: str
    ) -> None:
        owner = f" for {input_.model}" if input_ else ""
        written = self._written(parameter.name, spec, input_)
        empty = [path for path, setting in written if setting == ()]
        if empty:
            self._problem(
                empty[0],
                parameter,
                f"The parameter {parameter.name!r} is an empty list{owner}",
                expected=f"{parameter.name}: {parameter.meaning}; a number, or a list of some",
                found="[], which gives no value, and no value in an outer scope",
                fix=f"Write a number, like `{parameter.name}: 0.5`",
            )
            return
        place = (input_.path or spec.slice_.path) if input_ else ""
        self._problem(
            f"{place}.parameters".removeprefix("."),
            parameter,
            f"The parameter {parameter.name!r} of {self.method.name} is missing{owner}",
            expected=f"{parameter.name}: {parameter.meaning}",
            found=f"no value for tensor {tensor}",
            fix=f"Add `{parameter.name}:` under parameters"
            + (" of this model, or of the whole recipe" if input_ else ""),
        )

    def _written(
        self, name: str, spec: TensorSpec, input_: Input | None
    ) -> Iterator[tuple[str, Setting]]:
        """(YAML path, setting) of a parameter in every scope that has it, innermost first."""
        scopes = [(input_.path, input_.parameters)] if input_ else []
        scopes.append((spec.slice_.path, spec.slice_.parameters))
        scopes += [(spec.module.path, spec.module.parameters)] if spec.module else []
        for path, parameters in [*scopes, ("", self.recipe.parameters)]:
            if name in parameters:
                yield f"{path}.parameters.{name}".removeprefix("."), parameters[name]

    def _problem(self, path: str, parameter: Parameter, what: str, **facts: str) -> None:
        self.valid = False
        key = (path, parameter.name)
        if key not in self._found:
            self._found[key] = self.recipe.problem(what, path, **facts)


def check_parameters(recipe: Recipe, method: Method | None) -> tuple[list[Problem], list[str]]:
    """Check names and values wherever parameters stand.

    mergekit ignores parameters that a method does not read, so a parameter of another method is a
    note here. A name that no method has is a problem.

    Args:
        method: None where it is unknown: then only names are checked.

    Returns:
        problems, and notes for parameters of other methods.
    """
    own = {p.name: p for p in method.parameters} if method else {}
    every: set[str] = set()
    problems: list[Problem] = []
    notes: list[str] = []
    for path, settings in recipe.parameter_scopes():
        for name, setting in settings.items():
            place = f"{path}.{name}"
            if name in own:
                problems += _invalid_values(recipe, own[name], setting, place)
                continue
            # Collected only when needed: this imports every method.
            every = every or {p.name for other in METHODS.values() for p in other.parameters}
            if name in every:
                if method is None:
                    continue
                notes.append(f"{method.name} has no parameter {name!r}; it is ignored ({path})")
            else:
                near = closest(name, sorted({*own, *every}))
                problems.append(
                    recipe.problem(
                        f"Unknown parameter {name!r}",
                        place,
                        expected=", ".join(sorted(own if method else every))
                        or f"none: {recipe.merge_method} has no parameters",
                        found=name,
                        fix=f"Write '{near}'" if near else "Remove it",
                    )
                )
    return problems, list(dict.fromkeys(notes))


def _invalid_values(
    recipe: Recipe, parameter: Parameter, setting: Setting, path: str
) -> Iterator[Problem]:
    for at, value in _values(setting, ""):
        found = _invalid(parameter, value)
        if found is not None:
            yield recipe.problem(
                f"The parameter {parameter.name!r} has an invalid value",
                path + at,
                expected=f"{_wanted(parameter)} ({parameter.meaning})",
                found=found,
                fix=_advice(parameter, value),
            )


def _values(setting: Setting, at: str) -> Iterator[tuple[str, Scalar]]:
    """(where in the setting, value) of every value written in it."""
    entries: tuple[Conditional | Scalar, ...] = setting if isinstance(setting, tuple) else ()
    if not isinstance(setting, tuple):
        yield at, setting
    for index, entry in enumerate(entries):
        if isinstance(entry, Conditional):
            yield from _values(entry.value, f"{at}[{index}].value")
        else:
            yield f"{at}[{index}]", entry


def _invalid(parameter: Parameter, value: Scalar) -> str | None:
    """What is found where a value cannot be the parameter's; None where it can."""
    if parameter.kind == "bool":
        return repr(value) if isinstance(value, str) else None
    if isinstance(value, bool):
        return f"{str(value).lower()}, which is not a number"
    if isinstance(value, str):
        return repr(value)
    return None if parameter.low <= value <= parameter.high else repr(value)


def _kind(parameter: Parameter) -> str:
    return {"bool": "truth value", "int": "whole number", "float": "number"}[parameter.kind]


def _wanted(parameter: Parameter) -> str:
    kind = f"a {_kind(parameter)}"
    if parameter.kind == "bool":
        return "true or false"
    below, above = parameter.low > -FLOAT32_MAX, parameter.high < FLOAT32_MAX
    if below and above:
        return f"{kind} from {parameter.low:g} to {parameter.high:g}"
    if below:
        return f"{kind} of at least {parameter.low:g}"
    return f"{kind} of at most {parameter.high:g}" if above else f"{kind} that float32 can hold"


def _advice(parameter: Parameter, value: Scalar) -> str:
    if isinstance(value, bool):
        return f"Write {int(value)}, or the {_kind(parameter)} that you want"
    return f"Write {_wanted(parameter)}"
