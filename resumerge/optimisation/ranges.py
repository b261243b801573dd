"""One range of values that a search suggests from: ``{suggest: float, low: 0, high: 1}``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resumerge.recipe.invalid import InvalidValue, Location, describe
from resumerge.recipe.spelling import did_you_mean

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SUGGEST = "suggest"
FLOAT, INT, CATEGORICAL = "float", "int", "categorical"
KINDS = (FLOAT, INT, CATEGORICAL)

_RANGE = ("low", "high", "log", "step")
_CHOICES = "choices"
_NAME = "name"
_EXAMPLES = {
    FLOAT: "{suggest: float, low: 0, high: 1}",
    INT: "{suggest: int, low: 1, high: 8}",
    CATEGORICAL: "{suggest: categorical, choices: [ties, dare_ties]}",
}


@dataclass(frozen=True)
class SuggestedRange:
    """A range of values.

    Args:
        kind: `FLOAT`, `INT` or `CATEGORICAL`.
        name: the name of the range, if the space states one; places of the same name share a value.
        low: for a number, the smallest value.
        high: for a number, the largest value.
        log: whether numbers are drawn evenly by their logarithms.
        step: the distance of two numbers; None for a float that may have any value.
        choices: for a category, the (label in the study, value) pairs.
    """

    kind: str
    name: str = ""
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None
    choices: tuple[tuple[str | float | bool | None, Any], ...] = ()

    def distribution(self) -> BaseDistribution:
        """Return Optuna's distribution for the range."""
        from optuna import distributions as optuna

        if self.kind == CATEGORICAL:
            return optuna.CategoricalDistribution([label for label, _ in self.choices])
        if self.kind == INT:
            step = 1 if self.step is None else int(self.step)
            return optuna.IntDistribution(int(self.low), int(self.high), self.log, step)
        return optuna.FloatDistribution(self.low, self.high, self.log, self.step)

    def value(self, suggested: Any) -> Any:
        """Return the recipe's value for a suggestion of Optuna."""
        if self.kind == CATEGORICAL:
            return next(v for label, v in self.choices if _equals(label, suggested))
        return suggested

    def ends(self) -> list[Any]:
        """Return both ends of the range, or all choices: if these are valid, all values are."""
        if self.kind == CATEGORICAL:
            return [label for label, _ in self.choices]
        return [self.low, self.high]

    def between(self, share: float) -> Any:
        """Return the value a share, 0 to 1, of the way from low to high; or the first choice."""
        if self.kind == CATEGORICAL:
            return self.ends()[0]
        value = self.low + share * (self.high - self.low)
        if self.log:
            value = self.low * (self.high / self.low) ** share
        if self.kind == INT or self.step is not None:
            step = self.step or 1
            value = self.low + step * math.floor((value - self.low) / step)
        return int(value) if self.kind == INT else min(max(value, self.low), self.high)

    def grid(self) -> list[Any] | None:
        """Return all suggestions, in order; None if there is no finite number of them."""
        if self.kind == CATEGORICAL:
            return self.ends()
        if self.kind == INT:
            return list(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            return None
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        return [float(self.low + index * self.step) for index in range(count + 1)]


def read_suggestion(written: Mapping[Any, Any], at: Location) -> SuggestedRange:
    """Read a mapping with the key ``suggest``.

    Args:
        written: the mapping as YAML was loaded, unchecked except for the key.
        at: its place in the document.

    Raises:
        InvalidValue: it does not describe a range.
    """
    kind = written[SUGGEST]
    if kind not in KINDS:
        raise InvalidValue(
            f"Nothing is suggested by {describe(kind)}",
            expected=", ".join(KINDS[:-1]) + f" or {KINDS[-1]}",
            found=describe(kind),
            fix=did_you_mean(str(kind), KINDS) or f"Write {_EXAMPLES[FLOAT]}",
            at=(*at, SUGGEST),
        )
    allowed_keys = (SUGGEST, _NAME, *([_CHOICES] if kind == CATEGORICAL else _RANGE))
    for key in written:
        if key not in allowed_keys:
            raise InvalidValue(
                f"A suggestion of {kind} has no key {key!r}",
                expected=", ".join(allowed_keys),
                found=str(key),
                fix=did_you_mean(str(key), allowed_keys) or f"Write {_EXAMPLES[kind]}",
                at=(*at, str(key)),
            )
    name = written.get(_NAME, "")
    if not isinstance(name, str) or (_NAME in written and not name.strip()):
        raise InvalidValue(
            "The name of a suggestion is not text",
            expected="a name; places of one name have the same value",
            found=describe(name),
            fix="Write a word, or delete 'name:'",
            at=(*at, _NAME),
        )
    if kind == CATEGORICAL:
        return SuggestedRange(kind, name, choices=_choices(written, at))
    return _number(kind, name, written, at)


def _number(kind: str, name: str, written: Mapping[Any, Any], at: Location) -> SuggestedRange:
    low, high = (_bound(kind, key, written, at) for key in ("low", "high"))
    is_logarithmic = written.get("log", False)
    if not isinstance(is_logarithmic, bool):
        raise InvalidValue(
            "'log' is neither true nor false",
            expected="true or false",
            found=describe(is_logarithmic),
            fix="Write 'log: true', or delete it",
            at=(*at, "log"),
        )
    if low >= high:
        swapped_bounds = f"low: {high:g}, high: {low:g}"
        raise InvalidValue(
            "The range of a suggestion is empty: 'low' is not less than 'high'",
            expected="low < high",
            found=f"low: {low:g}, high: {high:g}",
            fix=f"Write {swapped_bounds}"
            if low > high
            else f"Write {low:g} in place of the suggestion",
            at=(*at, "low"),
        )
    if is_logarithmic and low <= 0:
        raise InvalidValue(
            "A range by logarithms does not begin above 0",
            expected="low > 0",
            found=f"low: {low:g}",
            fix=f"Write 'low: {high / 1000:g}', or delete 'log: true'",
            at=(*at, "low"),
        )
    step = None
    if written.get("step") is not None:
        step = _bound(kind, "step", written, at)
        if step <= 0 or is_logarithmic or step > high - low:
            raise InvalidValue(
                "The step of a suggestion cannot be used",
                expected="a number above 0, no larger than high - low, without 'log: true'",
                found=f"step: {step:g}" + (" and log: true" if is_logarithmic else ""),
                fix="Delete 'step:', or 'log:'",
                at=(*at, "step"),
            )
        high = low + math.floor((high - low) / step + 1e-9) * step
    return SuggestedRange(kind, name, low, high, is_logarithmic, step)


def _bound(kind: str, key: str, written: Mapping[Any, Any], at: Location) -> float:
    value = written.get(key)
    if isinstance(value, str):  # YAML 1.1 takes 1e-3 for text
        try:
            value = float(value)
        except ValueError:
            value = written[key]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        if kind == FLOAT:
            return float(value)
        if value == int(value):
            return int(value)
    raise InvalidValue(
        f"'{key}' of a suggestion is not a number" if key in written else f"'{key}' is missing",
        expected="a whole number" if kind == INT else "a finite number",
        found=describe(value),
        fix=f"Write {_EXAMPLES[kind]}",
        at=(*at, key) if key in written else at,
    )


def _choices(written: Mapping[Any, Any], at: Location) -> tuple[tuple[Any, Any], ...]:
    choices = written.get(_CHOICES)
    labels = [_label(choice) for choice in choices] if isinstance(choices, list) else []
    if len(labels) < 2:
        raise InvalidValue(
            "There is nothing to choose from",
            expected="a list of two values or more",
            found=describe(choices),
            fix=f"Write {_EXAMPLES[CATEGORICAL]}",
            at=(*at, _CHOICES) if _CHOICES in written else at,
        )
    for number, label in enumerate(labels):
        if label in labels[:number]:
            raise InvalidValue(
                "A choice is there twice",
                expected="different values",
                found=describe(choices[number]) if choices is not None else "",
                fix="Delete one of the two",
                at=(*at, _CHOICES, number),
            )
    return tuple(zip(labels, choices or ()))


def _label(choice: Any) -> str | float | bool | None:
    """Return the study's label for a choice: itself, or JSON text for a list or mapping."""
    if choice is None or isinstance(choice, str | int | float):
        return choice
    return json.dumps(choice, default=str)


def _equals(label: object, suggested: object) -> bool:
    return label == suggested and isinstance(label, bool) == isinstance(suggested, bool)
