"""Checks a recipe's parameters, and asks `recipe.resolve` for their values for each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from resumerge.errors import Problem
from resumerge.layout.model_views import ModelViews
from resumerge.methods import METHODS, MergeMethod, Parameter, Value
from resumerge.methods.base import FLOAT32_MAX
from resumerge.planning.tensor_specs import TensorSpec
from resumerge.recipe import Conditional, Input, Recipe, Scalar, Setting, resolve
from resumerge.recipe.resolve import matches
from resumerge.recipe.schema.settings import truth
from resumerge.recipe.spelling import correction, misspelled


@dataclass
class Parameters:
    """The parameters of one recipe, resolved for each tensor; each problem is collected once.

    Args:
        valid: whether the parameters and the number of models are valid, as far as is checked.
    """

    recipe: Recipe
    method: MergeMethod
    valid: bool = True
    _problems: dict[tuple[str, str], Problem] = field(default_factory=dict)
    """The problems found so far, by YAML path and name of the parameter."""
    _interned: dict[tuple[tuple[str, str], ...], dict[str, Value]] = field(default_factory=dict)
    """The values by their text. Most tensors have equal values, and share one dictionary."""

    @cached_property
    def has_filters(self) -> bool:
        """Whether a value depends on the names of tensors."""
        scopes = self.recipe.parameter_scopes()
        settings = (setting for _, in_scope in scopes for setting in in_scope.values())
        entries = (e for setting in settings if isinstance(setting, tuple) for e in setting)
        return any(isinstance(entry, Conditional) for entry in entries)

    @property
    def problems(self) -> list[Problem]:
        """The problems found so far, each once."""
        return list(self._problems.values())

    def of_merge(self, spec: TensorSpec, names: Sequence[str]) -> dict[str, Value]:
        """Return the values of the parameters that do not belong to a single model.

        Args:
            spec: the output tensor, whose slice, module and position select the values.
            names: the output tensor's names, which filters are compared with.
        """
        values = {
            parameter.name: self._value(parameter, spec, None, names)
            for parameter in self.method.parameters
            if not parameter.per_model
        }
        return self._shared(values)

    def of_input(
        self, spec: TensorSpec, input_: Input, names: Sequence[str], *, is_base: bool
    ) -> dict[str, Value]:
        """Return the values of one model's parameters; empty for the base model of task vectors.

        Args:
            spec: the output tensor, whose slice, module and position select the values.
            input_: the model's entry in the recipe.
            names: the tensor's names in this model, which filters are compared with.
            is_base: whether the model is the base model of the slice, which has no parameters if
                the method reads a base model.
        """
        if is_base and self.method.base != "none":
            return {}
        values = {
            parameter.name: self._value(parameter, spec, input_, names)
            for parameter in self.method.parameters
            if parameter.per_model
        }
        return self._shared(values)

    def _shared(self, values: dict[str, Value]) -> dict[str, Value]:
        """Return an equal dictionary: one object for all tensors with these values."""
        return self._interned.setdefault(
            tuple((name, repr(value)) for name, value in values.items()), values
        )

    def _value(
        self, parameter: Parameter, spec: TensorSpec, input_: Input | None, names: Sequence[str]
    ) -> Value:
        raw_value = resolve(
            self.recipe,
            parameter.name,
            names=names,
            t=spec.t,
            slice_=spec.slice_,
            input_=input_,
            module=spec.module,
            stepwise=parameter.kind == "bool",
        )
        if raw_value is None:
            if parameter.required:
                self._missing(parameter, spec, input_, names[0])
            value: Value = 0.0 if parameter.required else parameter.default
            return value
        if parameter.kind == "bool":
            return bool(truth(raw_value))
        try:
            number = float(raw_value)
        except ValueError:
            number = float("nan")  # text, reported by check_parameters
        if parameter.saturates:
            number = min(number, parameter.high)
        if parameter.kind == "int" and not number.is_integer():
            owner = f" of {input_.model}" if input_ else ""
            self._problem(
                next(path for path, _ in self._written(parameter.name, spec, input_)),
                parameter,
                f"The parameter {parameter.name!r}{owner} is not a whole number",
                expected=f"a whole number for every tensor ({parameter.meaning})",
                found=f"{number:g} for tensor {names[0]}",
                fix="Write one whole number, or a gradient that gives whole numbers",
            )
        return number

    def _missing(
        self, parameter: Parameter, spec: TensorSpec, input_: Input | None, tensor: str
    ) -> None:
        owner = f" for {input_.model}" if input_ else ""
        scoped_settings = self._written(parameter.name, spec, input_)
        empty_paths = [path for path, setting in scoped_settings if setting == ()]
        if empty_paths:
            self._problem(
                empty_paths[0],
                parameter,
                f"The parameter {parameter.name!r} is an empty list{owner}",
                expected=f"{parameter.name}: {parameter.meaning}; a number, or a list of numbers",
                found="[], which gives no value, and no value in an outer scope",
                fix=f"Write a number, like `{parameter.name}: 0.5`",
            )
            return
        scope_path = (input_.path or spec.slice_.path) if input_ else ""
        fix = f"Add `{parameter.name}:` under parameters"
        if input_ and scope_path.endswith("base_model"):
            fix = (
                f"List {input_.model} in `models:` with `{parameter.name}:`; or delete "
                f"`base_model:`, with which {self.method.name} merges it like any other model"
            )
        elif input_:
            fix += " of this model, or of the whole recipe"
        self._problem(
            f"{scope_path}.parameters".removeprefix("."),
            parameter,
            f"The parameter {parameter.name!r} of {self.method.name} is missing{owner}",
            expected=f"{parameter.name}: {parameter.meaning}",
            found=f"no value for tensor {tensor}",
            fix=fix,
        )

    def _written(
        self, name: str, spec: TensorSpec, input_: Input | None
    ) -> Iterator[tuple[str, Setting]]:
        """Yield (YAML path, setting) of a parameter in every scope that has it, innermost first."""
        scopes = [(input_.path, input_.parameters)] if input_ else []
        scopes.append((spec.slice_.path, spec.slice_.parameters))
        scopes += [(spec.module.path, spec.module.parameters)] if spec.module else []
        for path, parameters in [*scopes, ("", self.recipe.parameters)]:
            if name in parameters:
                yield f"{path}.parameters.{name}".removeprefix("."), parameters[name]

    def _problem(self, path: str, parameter: Parameter, what: str, **facts: str) -> None:
        self.valid = False
        key = (path, parameter.name)
        if key not in self._problems:
            self._problems[key] = self.recipe.problem(what, path, **facts)


def check_parameters(recipe: Recipe, method: MergeMethod) -> tuple[list[Problem], list[str]]:
    """Check names and values of parameters in every scope, and unknown keys beside `parameters`.

    mergekit ignores parameters that a method does not read. Parameters of other methods and unknown
    names are therefore only notes. A misspelled name, or a parameter outside of ``parameters``, is
    a problem.

    Returns:
        The problems, and the notes.
    """
    own_parameters = {p.name: p for p in method.parameters}
    written_names = {name for _, settings in recipe.parameter_scopes() for name in settings}
    all_names: set[str] = set()
    if recipe.ignored or not written_names <= own_parameters.keys():
        # METHODS.values() loads installed methods and the files of RESUMERGE_METHODS.
        all_names = {p.name for other_method in METHODS.values() for p in other_method.parameters}
    problems: list[Problem] = []
    notes: list[str] = []
    for path, settings in recipe.parameter_scopes():
        for name, setting in settings.items():
            yaml_path = f"{path}.{name}"
            if name in own_parameters:
                problems += _invalid_values(recipe, own_parameters[name], setting, yaml_path)
                notes += _surprising_values(own_parameters[name], setting, yaml_path)
            elif name not in all_names and (
                similar_name := misspelled(name, sorted({*own_parameters, *all_names}))
            ):
                valid_names = ", ".join(sorted(own_parameters))
                problems.append(
                    _misspelled_parameter(recipe, name, similar_name, yaml_path, valid_names)
                )
            else:
                notes.append(f"{method.name} has no parameter {name!r}; it is ignored ({path})")
    for yaml_path, key in recipe.ignored.items():
        if meant_name := key if key in all_names else misspelled(key, sorted(all_names)):
            problems.append(_misplaced_parameter(recipe, key, meant_name, yaml_path))
        else:
            notes.append(f"the key {key!r} has no effect, as in mergekit ({yaml_path})")
    return problems, notes


def _misspelled_parameter(
    recipe: Recipe, name: str, near: str, path: str, expected: str
) -> Problem:
    return recipe.problem(
        f"Unknown parameter {name!r}",
        path,
        expected=expected,
        found=name,
        fix=(correction(name, near) or f"Write '{near}'")
        + ", or delete the line, which mergekit ignores",
    )


def _misplaced_parameter(recipe: Recipe, name: str, meant: str, path: str) -> Problem:
    move = "Move it" if name == meant else f"Write '{meant}'"
    return recipe.problem(
        f"The parameter {name!r} is not below 'parameters:'",
        path,
        expected=f"parameters: {{{meant}: …}}",
        found=f"{name} beside it",
        fix=f"{move} under 'parameters:', or delete the line, which mergekit ignores",
    )


def _invalid_values(
    recipe: Recipe, parameter: Parameter, setting: Setting, path: str
) -> Iterator[Problem]:
    for path_in_setting, value in _values(setting, ""):
        if not _is_valid(parameter, value):
            yield recipe.problem(
                f"The parameter {parameter.name!r} has an invalid value",
                path + path_in_setting,
                expected=f"{_expected_values(parameter)} ({parameter.meaning})",
                found=repr(value),
                fix=f"Write {_expected_values(parameter)}",
            )


def _surprising_values(parameter: Parameter, setting: Setting, path: str) -> Iterator[str]:
    """Yield a note for each value that is used as a different value, as in mergekit."""
    for value_path, value in _values(setting, path):
        if parameter.kind == "bool":
            if isinstance(value, str):
                yield (
                    f"{value_path} is the text {value!r}: it counts as {str(truth(value)).lower()}"
                )
        elif isinstance(value, bool):
            yield f"{value_path} is {str(value).lower()}: it counts as {int(value)}"
        elif not isinstance(value, str) and parameter.saturates and value > parameter.high:
            yield f"{value_path} is {value:g}: it counts as {parameter.high:g}, the largest value"


def _values(setting: Setting, path: str) -> Iterator[tuple[str, Scalar]]:
    """Yield (path, value) of every value written in a setting."""
    entries: tuple[Conditional | Scalar, ...] = setting if isinstance(setting, tuple) else ()
    if not isinstance(setting, tuple):
        yield path, setting
    for index, entry in enumerate(entries):
        if isinstance(entry, Conditional):
            yield from _values(entry.value, f"{path}[{index}].value")
        else:
            yield f"{path}[{index}]", entry


def _is_valid(parameter: Parameter, value: Scalar) -> bool:
    if parameter.kind == "bool":
        return truth(value) is not None
    if isinstance(value, str):
        return False
    high = FLOAT32_MAX if parameter.saturates else parameter.high
    return parameter.low <= value <= high


def _kind(parameter: Parameter) -> str:
    return {"bool": "boolean", "int": "whole number", "float": "number"}[parameter.kind]


def _expected_values(parameter: Parameter) -> str:
    kind = f"a {_kind(parameter)}"
    if parameter.kind == "bool":
        return "true or false"
    has_minimum, has_maximum = parameter.low > -FLOAT32_MAX, parameter.high < FLOAT32_MAX
    if has_minimum and has_maximum:
        return f"{kind} from {parameter.low:g} to {parameter.high:g}"
    if has_minimum:
        return f"{kind} of at least {parameter.low:g}"
    return (
        f"{kind} of at most {parameter.high:g}" if has_maximum else f"{kind} that float32 can hold"
    )


def notes_on_filters(recipe: Recipe, models: ModelViews) -> Iterator[str]:
    """Yield a note on each filter that matches no tensor, with the most similar parts of names."""
    filter_entries: dict[str, tuple[str, Conditional]] = {}
    for path, settings in recipe.parameter_scopes():
        for name, setting in settings.items():
            for entry in setting if isinstance(setting, tuple) else ():
                if isinstance(entry, Conditional) and entry.filter not in (None, "*"):
                    filter_entries.setdefault(str(entry.filter), (f"{path}.{name}", entry))
    if not filter_entries:
        return
    names = {
        name
        for ref, source in models.sources.items()
        for own_name in source.tensors
        for name in models.names_of(ref, own_name)
    }
    name_parts = {part for name in names for part in name.split(".") if not part.isdecimal()}
    for filter_text, (setting_path, entry) in filter_entries.items():
        if not matches(entry, tuple(names)):
            similar_parts = ", ".join(map(repr, get_close_matches(filter_text, name_parts, n=3)))
            suggestion = f"; names of tensors have {similar_parts}" if similar_parts else ""
            yield (
                f"the filter {filter_text!r} matches no tensor, so its value is not used "
                f"({setting_path})" + suggestion
            )
