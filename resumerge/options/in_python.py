"""Messages for users of Python: arguments in place of options, functions in place of commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from typing import Any

from resumerge.errors import DoubtfulNumbers, InputError, Problem, Resumable, ResumergeError
from resumerge.options.declaration import Option
from resumerge.options.options import declared
from resumerge.options.types import Flag

_COMMAND = r"(?P<quote>`|(?m:^))(?P<command>resumerge [^\n`]*)`?|`[^`]*`|\bresumerge [^\n]*"
_OPTION = r"--(?P<name>[a-z][a-z-]*)(?:[ =](?P<value>[\w./:@+-]*[\w/]))?"
_ARGUMENTS = {"run": 2, "reproduce": 2, "resume": 1, "status": 1, "verify": 1, "explain": 1}
"""Commands whose Python function has the same positional arguments, and their number."""

_OWN = {
    **{
        name: name
        for name in ("base", "kind", "sampler", "timeout", "batch", "jobs", "branch", "message")
    },
    "include-regex": "include",
    "exclude-regex": "exclude",
    "save-module": "save_modules",
    "metric": "metrics",
    "direction": "directions",
}
"""Arguments that are not declared options and have values, by their command-line names."""

_OWN_FLAGS = {
    "embed-lora": "embed_lora=True",
    "skip-undecomposable": "skip_undecomposable=True",
    "sources": "sources=True",
    "public": "private=False",
}
"""Arguments for flags that are not declared options, by the names of the flags."""

_VALUES = ("auto", "none", "cpu", "cuda", "always", "never")
_WORDS = re.compile(f"{_COMMAND}|{_OPTION}")


def in_python(text: str) -> str:
    """Return a message with ``offline=True`` for ``--offline``, and calls for commands.

    A command stays as it is if Python has no function for it, or no argument for one of its
    options. The word after an option is taken for its value if it contains a digit, a colon or a
    slash, is in capitals, or is one of `_VALUES`.
    """
    return _WORDS.sub(_in_python, text)


def problem_in_python(problem: Problem) -> Problem:
    """Return a copy of a problem whose texts name arguments."""
    values: dict[str, Any] = {row.name: getattr(problem, row.name) for row in fields(problem)}
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = in_python(value)
    return Problem(**values)


def error_in_python(error: ResumergeError) -> None:
    """Change an error's texts in place, so that they name arguments."""
    if isinstance(error, InputError):
        error.problems = [problem_in_python(problem) for problem in error.problems]
    elif isinstance(error, Resumable):
        error.message = in_python(error.message)
    elif isinstance(error, DoubtfulNumbers):
        error.because_of = in_python(error.because_of)


def _in_python(found: re.Match[str]) -> str:
    if found["command"]:
        return f"{found['quote']}{_as_call(found['command'])}{found['quote']}"
    return found[0] if found["name"] is None else _as_argument(found)


def _as_call(command: str) -> str:
    """Return the Python call for a shell command; the command if there is no such call."""
    try:
        name, *words = shlex.split(command)[1:]
    except ValueError:
        return command
    options = {option.flag: option for option in declared(name)}
    positional_texts: list[str] = []
    keyword_texts: list[str] = []
    words.reverse()
    while words:
        word = words.pop()
        if not word.startswith("--"):
            positional_texts.append(repr(word))
            continue
        option = options.get(word)
        if option is None or option.type.repeatable or not (words or _is_flag(option)):
            return command
        value = True if _is_flag(option) else words.pop()
        keyword_texts.append(f"{option.name}={int(value) if str(value).isdigit() else value!r}")
    if len(positional_texts) != _ARGUMENTS.get(name):
        return command
    return f"resumerge.{name}({', '.join([*positional_texts, *keyword_texts])})"


def _is_flag(option: Option) -> bool:
    return isinstance(option.type, Flag)


def _as_argument(match: re.Match[str]) -> str:
    options = {option.name: option for option in declared()}
    option_name = match["name"]
    name, value = option_name.replace("-", "_"), match["value"]
    suffix = match[0].removeprefix(f"--{option_name}")
    if name not in options and name.removeprefix("no_") in options:
        return f"{name.removeprefix('no_')}=False{suffix}"
    if option_name in _OWN_FLAGS:
        return _OWN_FLAGS[option_name] + suffix
    if name not in options and option_name not in _OWN:
        return match[0]
    if name in options and _is_flag(options[name]):
        return f"{name}=True{suffix}"
    name = _OWN.get(option_name, name)
    if value and (value.isupper() or re.search("[0-9:/]", value) or value in _VALUES):
        return f"{name}={value if value.isdigit() else repr(value)}"
    return f"{name}{suffix}"
