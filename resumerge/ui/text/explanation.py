"""The resolved parameters as columns, divided into constant and varying values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resumerge.printable import printable
from resumerge.sizes import counted, some

MOST_KINDS = 8
"""The most kinds of tensors in a heading."""

Document = Mapping[str, Any]

_Key = tuple[str, str]
"""(model, parameter). The model is empty for a parameter of the merge itself."""


@dataclass(frozen=True)
class ValueColumn:
    """The values of one parameter, with a cell for each row of a group.

    Args:
        parameter: the name of the parameter; ``method``; or the use of a model without parameters,
            like ``merged``.
        model: the model of the parameter; empty for a parameter of the merge itself.
        cells: the values as text; empty text for a row without a value.
        numbers: the values as numbers; None for a row whose value is not a single number.
    """

    parameter: str
    model: str
    cells: tuple[str, ...]
    numbers: tuple[float | None, ...]

    @property
    def label(self) -> str:
        """The name of the column."""
        return f"{self.parameter} of {self.model}" if self.model else self.parameter

    @property
    def is_constant(self) -> bool:
        return len(set(self.cells)) == 1

    @property
    def heights(self) -> list[float | None]:
        """The magnitudes of `numbers`, as shares of the largest one; None for a row without one."""
        largest = max((abs(n) for n in self.numbers if n is not None), default=0.0) or 1.0
        return [None if n is None else abs(n) / largest for n in self.numbers]


def title(stage: Document) -> str:
    """Return the heading of a document of the recipe."""
    name = f"{stage['name']}: " if stage["name"] else ""
    return printable(f"{name}{stage['method']} of {counted(len(stage['models']), 'model')}")


def meanings(stage: Document) -> list[str]:
    """Return a line with the meaning of each parameter that the tensors of a document have."""
    used = {column.parameter for group in stage["groups"] for column in columns(group)}
    return [f"{name}: {text}" for name, text in stage["parameters"].items() if name in used]


def heading(group: Document) -> str:
    """Return the heading of a group: its number of tensors, and their kinds."""
    kinds = some(group["kinds"], most=MOST_KINDS)
    return printable(f"{counted(group['tensors'], 'tensor')}: {kinds}")


def columns(group: Document) -> list[ValueColumn]:
    """Return the columns of a group, in the order of the recipe's models."""
    rows = [[_values(setting) for setting in row["settings"]] for row in group["rows"]]
    keys = dict.fromkeys(key for row in rows for values in row for key in values)
    return [_column(key, rows) for key in keys]


def constants(columns: Iterable[ValueColumn]) -> list[str]:
    """Return a line for the merge and for each model, with the values that all rows share."""
    lines: dict[str, list[str]] = {}
    for column in columns:
        if column.is_constant:
            values = (
                f"{column.parameter} {column.cells[0]}" if column.cells[0] else column.parameter
            )
            lines.setdefault(column.model, []).append(values)
    return [
        printable(f"{model}: {', '.join(values)}" if model else ", ".join(values))
        for model, values in lines.items()
    ]


def span(layers: Sequence[str] | None) -> str:
    """Return consecutive layers as text, like ``2 to 5``; empty for None."""
    if not layers:
        return ""
    return layers[0] if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"


def _values(setting: Document) -> dict[_Key, Any]:
    """Return the values of a setting by model and parameter.

    A repeated model has the number of the repetition after its name.
    """
    is_copied = setting["method"] is None
    values: dict[_Key, Any] = {} if is_copied else {("", "method"): setting["method"]}
    values |= {("", name): value for name, value in setting["parameters"].items()}
    names: list[str] = []
    for model in setting["models"]:
        names.append(model["model"])
        occurrence_number = names.count(model["model"])
        name = (
            model["model"] if occurrence_number == 1 else f"{model['model']} ({occurrence_number})"
        )
        own_values = {(name, key): value for key, value in model["parameters"].items()}
        role = "copied" if is_copied else "base model" if model["base"] else "merged"
        values |= own_values or {(name, role): ""}
    return values


def _column(key: _Key, rows: Sequence[Sequence[Mapping[_Key, Any]]]) -> ValueColumn:
    model, parameter = key
    values_of_rows = [[values[key] for values in row if key in values] for row in rows]
    cells = [" or ".join(dict.fromkeys(map(_text, values))) for values in values_of_rows]
    if parameter in ("copied", "base model", "merged"):
        cells = ["yes" if values else "" for values in values_of_rows]
        cells = [""] * len(cells) if all(cells) else cells
    numbers = [
        float(values[0]) if len(set(values)) == 1 and _is_number(values[0]) else None
        for values in values_of_rows
    ]
    return ValueColumn(parameter, model, tuple(cells), tuple(numbers))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not _is_number(value):
        return str(value).lower()
    return f"{value:.4g}"
