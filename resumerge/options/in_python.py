"""Messages for users of Python: an option is named as the argument that it is there."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from resumerge.errors import InputError, Problem, Resumable, ResumergeError
from resumerge.options.options import declared
from resumerge.options.types import Flag

_COMMAND = r"`[^`]*`|\bresumerge [^\n]*"
_OPTION = r"--(?P<name>[a-z][a-z-]*)(?:[ =](?P<value>[\w./:@+-]*[\w/]))?"
_VALUES = ("auto", "none", "cpu", "cuda", "always", "never")
_WORDS = re.compile(f"{_COMMAND}|{_OPTION}")


def in_python(text: str) -> str:
    """Return a message with ``offline=True`` for ``--offline``; commands to type stay.

    A word after an option is its value if it looks like one: it has a digit, a colon or a slash, is
    in capitals, or is one of the words that stand for values.
    """
    return _WORDS.sub(_as_argument, text)


def problem_in_python(problem: Problem) -> Problem:
    """Return a problem whose texts name arguments."""
    values: dict[str, Any] = {row.name: getattr(problem, row.name) for row in fields(problem)}
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = in_python(value)
    return Problem(**values)


def error_in_python(error: ResumergeError) -> None:
    """Change an error's texts so that they name arguments."""
    if isinstance(error, InputError):
        error.problems = [problem_in_python(problem) for problem in error.problems]
    elif isinstance(error, Resumable):
        error.message = in_python(error.message)


def _as_argument(found: re.Match[str]) -> str:
    options = {option.name: option for option in declared()}
    written = found["name"]
    if written is None:
        return found[0]
    name, value = written.replace("-", "_"), found["value"]
    rest = found[0].removeprefix(f"--{written}")
    if name not in options and name.removeprefix("no_") in options:
        return f"{name.removeprefix('no_')}=False{rest}"
    if name not in options:
        return found[0]
    option = options[name]
    if isinstance(option.type, Flag):
        return f"{name}=True{rest}"
    if value and (value.isupper() or re.search("[0-9:/]", value) or value in _VALUES):
        return f"{name}={value if value.isdigit() else repr(value)}"
    return f"{name}{rest}"
