"""The options of `run` that a page may set, and the conversion of its fields to options."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from resumerge.errors import refuse
from resumerge.mirror.stores.registry import is_mirror_url
from resumerge.options import Option, Options, declared
from resumerge.options.cluster import ClusterAddress, TaskResources
from resumerge.options.types import Count, Folder, Number, Seconds, Words

NOT_ON_A_PAGE = (Folder, ClusterAddress, TaskResources)
"""The types of options that a page must not set: folders of this machine, and other machines."""


def settings(without: Collection[str] = ()) -> list[Option]:
    """Return the declarations of the options that a page may set.

    Args:
        without: names of other options that the page must not set.
    """
    return [
        option
        for option in declared("run")
        if not isinstance(option.type, NOT_ON_A_PAGE) and option.name not in without
    ]


def options_from_fields(declarations: Sequence[Option], values: Sequence[Any]) -> Options:
    """Return the options that a page's fields set.

    Args:
        declarations: the declaration of the option of each field.
        values: the values of the fields, in the same order. An empty field, or an unchecked box,
            sets no option.

    Raises:
        InputError: values are invalid, all of which are listed; or the mirror is a folder.
    """
    option_values = {
        option.name: _read(option, value)
        for option, value in zip(declarations, values, strict=True)
        if value and str(value).strip()
    }
    mirror = option_values.get("mirror")
    if mirror is not None and not is_mirror_url(mirror):
        raise refuse(
            "This cannot be the mirror of a merge from a page",
            expected="a repo of the Hub, like hf://org/name, or a place in a bucket",
            found=mirror,
            fix="write its address; a folder is named by `resumerge run --mirror`",
        )
    return Options.read("run", option_values)


def words_of(options: Options, command: str) -> list[str]:
    """Return the words of a command line that set these options.

    Args:
        options: the options that a person set; those that have their default are left out.
        command: the command, like ``resume``. Options that it does not have are left out.
    """
    option_values = options.given(command)
    return [word for option, value in option_values for word in option.words(value)]


def _read(option: Option, value: Any) -> Any:
    """Return a field's value in the form that the option's type reads; an invalid one unchanged."""
    if not isinstance(value, str):
        return value
    if isinstance(option.type, Words):
        return [*filter(None, map(str.strip, value.split(",")))]
    number = {Number: int, Count: int, Seconds: float}.get(type(option.type))
    with suppress(ValueError):
        return number(value) if number is not None else value.strip()
    return value.strip()
