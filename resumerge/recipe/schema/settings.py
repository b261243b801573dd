"""The reader of a parameter's value: a scalar, a gradient over layers, or filtered values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.spelling import misspelled
from resumerge.recipe.types import Conditional, Scalar, Setting

FILTERED = ("filter", "value")
"""The keys of a filtered value."""

_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}

_EXPECTED = "a number, a list of numbers (a gradient), or a list of {filter: …, value: …}"


def read_setting(value: object) -> Setting:
    """Return a parameter's value from its YAML value.

    A text that contains a number becomes a number. YAML 1.1 reads ``1e-3`` as text, but mergekit
    0.1.5 converts it to a number, and ``nan``, too (observed). A text for true or false stays text,
    because only a parameter of kind bool may have such a value. A ``{filter, value}`` without a
    list is read as a list of one entry (observed). An empty list stays empty: this scope then has
    no value, and the next scope decides (see `resolve`).

    Raises:
        InvalidValue: the value has another form, a filter is inside a filtered value, or numbers
            are mixed with filters.
    """
    if isinstance(value, Mapping):
        return (_conditional(value, ()),)
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return tuple(_conditional(item, (index,)) for index, item in enumerate(value))
    return _plain(value, ())


def truth(value: object) -> bool | None:
    """Return a YAML value's truth value in mergekit 0.1.5 (observed); None for any other value.

    1 and 0 count as true and false, as do the texts true, t, yes, y, on, 1, and false, f, no, n,
    off, 0, in any case.
    """
    if isinstance(value, str):
        return _WORDS.get(value.lower())
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def unread_keys(entry: Mapping[Any, Any]) -> list[Any]:
    """Return the keys of a filtered value that have no effect."""
    return [key for key in entry if key not in FILTERED]


def _plain(value: object, at: tuple[str | int, ...]) -> Scalar | tuple[Scalar, ...]:
    if not isinstance(value, list):
        return _scalar(value, at)
    return tuple(_entry(item, (*at, index)) for index, item in enumerate(value))


def _entry(item: object, at: tuple[str | int, ...]) -> Scalar:
    """Return an entry of a gradient: a number, or a text for true or false."""
    if isinstance(item, bool):
        return item
    if isinstance(item, str) and truth(item) is not None and not item.isdecimal():
        return item
    return _number(item, at)


def _scalar(value: object, at: tuple[str | int, ...]) -> Scalar:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    if isinstance(value, bool | int | float):
        _number(value, at)
        return value
    raise InvalidValue(
        "This is not a value for a parameter",
        expected=_EXPECTED,
        found=describe(value),
        fix="Write a value, or delete the parameter to use its default",
        at=at,
    )


def _number(value: object, at: tuple[str | int, ...]) -> float:
    if isinstance(value, bool | int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise InvalidValue(
        "This is not a number",
        expected="a number that fits a float64, for each entry of a gradient",
        found=describe(value),
        fix="Write either numbers only, like [0, 0.5, 1], or entries of {filter: …, value: …} only",
        at=at,
    )


def _conditional(entry: Mapping[Any, Any], at: tuple[str | int, ...]) -> Conditional:
    if "suggest" in entry:
        raise InvalidValue(
            "This is a range of a search, not a value",
            expected=_EXPECTED,
            found=describe(entry),
            fix="Write a value; or search: resumerge search SPACE OUT --evaluate 'CMD {model}'",
            at=at,
        )
    wrong_keys = [str(key) for key in unread_keys(entry) if misspelled(str(key), FILTERED)]
    if wrong_keys or "value" not in entry:
        raise InvalidValue(
            "A filtered value must have the keys filter and value",
            expected="{filter: part of a tensor's name, value: a number or a gradient}",
            found=describe(entry),
            fix=f"Delete or correct '{wrong_keys[0]}'" if "value" in entry else "Add 'value:'",
            at=(*at, wrong_keys[0]) if "value" in entry else at,
        )
    filter_text = entry.get("filter")
    if filter_text is not None and not isinstance(filter_text, str):
        raise InvalidValue(
            "A filter must be text: a part of a tensor's name",
            expected="text like mlp, self_attn or layers.3.",
            found=describe(filter_text),
            fix=f"Put it in quotes: '{filter_text}'",
            at=(*at, "filter"),
        )
    value = entry["value"]
    inner_values = value if isinstance(value, list) else [value]
    if any(isinstance(item, Mapping) for item in inner_values):
        raise InvalidValue(
            "A filtered value cannot contain filters",
            expected="a number or a gradient",
            found=describe(inner_values[0]),
            fix="Write one flat list; the first entry that matches a tensor applies",
            at=(*at, "value"),
        )
    return Conditional(filter_text, _plain(value, (*at, "value")))
