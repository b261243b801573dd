"""The types of options' values: how a value is read, checked and written.

An `OptionType` handles the three forms of a value: text on the command line, a Python value (where
``"2GB"`` may stand for bytes), and JSON in a run's ledger.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from resumerge.local_path import address_in, expand, is_path, local_path

StrPath = str | Path

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)


_AGE = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str) -> float:
    """Return the seconds of an age like ``30d``, ``12h``, ``90m``, ``45s`` or ``2w``.

    Raises:
        ValueError: the text is not an age.
    """
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _AGE or not number.isascii() or not number.isdigit() or len(number) > 6:
        raise ValueError(f"{text!r} is not an age like 30d, 12h or 90m")
    return float(int(number) * _AGE[unit])


def parse_size(text: str) -> int:
    """Return the bytes of a size: ``5GB`` and ``5G`` are 5e9, ``5GiB`` is 5 * 2**30.

    ``5B`` is also 5e9: mergekit's tutorials write 5 billion in this form, and a size of five bytes
    makes no sense. For the same reason, a number below 1000 without a unit is refused.

    Raises:
        ValueError: the text is not a size, or the size is zero.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is not a size; write one like 5GB, 500MB or 4GiB")
    factor = (_BINARY if match[3] else _UNITS)[match[2].lower()]
    if not match[2] and text.strip()[-1] in "bB":
        factor = 10**9
    size = int(float(match[1]) * factor)
    if size <= 0:
        raise ValueError(f"{text!r} is not a size above zero")
    if size < 1000 and not match[2]:
        raise ValueError(
            f"{text!r} is not a size: without a unit it is in bytes; write {match[1]}GB or "
            f"{match[1]}MB"
        )
    return size


def _is_above_zero(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class OptionType(ABC):
    """The type of an option's value.

    Attributes:
        expected: a description of valid values, for messages.
        metavar: the placeholder for the value in help.
        accepts: the Python type that functions like `resumerge.run` accept.
        note: a sentence about that type for the functions' documentation; empty for none.
        repeatable: whether the value is a sequence. On the command line, the option is repeated
            for each of its items.
        bare: the value if the command line has the option without a value; None if the option
            needs a value.
        default_word: the word that stands for the option's default; None if the type has no such
            word.
        reads_text: whether `read` also reads the text of the command line. For other types, click
            converts the text to a string, a number, a path or a flag.
    """

    expected: str
    metavar: str
    accepts: Any
    note: str = ""
    repeatable: bool = False
    bare: str | None = None
    default_word: str | None = None
    reads_text: bool = False

    def read(self, value: object) -> object:
        """Return the option's value for a value from Python, or for text (`reads_text`).

        An invalid value may be returned unchanged; `is_valid` detects it.

        Raises:
            ValueError: the value is invalid, and the message is more exact than `expected`.
            InputError: the value is invalid, and the problem is complete.
        """
        return value

    @abstractmethod
    def is_valid(self, value: object) -> bool:
        """Return whether a value is valid in the form that `Options` has."""

    def is_kept_as(self, value: object) -> bool:
        """Return whether a value is valid in the form that a ledger keeps, in JSON."""
        return self.is_valid(value)

    def as_text(self, value: Any) -> str:
        """Return the value as text for a command line."""
        return str(value)


class Flag(OptionType):
    """True or false. On the command line, the option's name alone means true."""

    expected, metavar, accepts = "True or False", "", bool

    def is_valid(self, value: object) -> bool:
        return isinstance(value, bool)


class Number(OptionType):
    """A whole number."""

    expected, metavar, accepts = "a whole number", "N", int

    def is_valid(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)


class Count(Number):
    """A whole number above zero, or ``auto`` for the default."""

    expected = "a whole number above zero, or 'auto'"
    accepts = int | Literal["auto"]
    default_word = "auto"

    def is_valid(self, value: object) -> bool:
        return _is_above_zero(value)


class Size(OptionType):
    """A number of bytes above zero. People may write ``2GB``.

    Args:
        example: an example of a size, for messages.
        default_word: the word that stands for the option's default; None if there is no such word.
    """

    metavar, accepts = "SIZE", int | str
    reads_text = True
    note = "A number is in bytes."

    def __init__(self, example: str, default_word: str | None = None) -> None:
        self.default_word = default_word
        self.expected = f"bytes, above zero, or a size like {example}"
        if default_word is not None:
            self.expected += f", or {default_word!r}"

    def read(self, value: object) -> object:
        if not isinstance(value, str) or value == self.default_word:
            return value
        return parse_size(value)

    def is_valid(self, value: object) -> bool:
        return _is_above_zero(value)

    def as_text(self, value: Any) -> str:
        # A size below 1000 bytes, from Python, can only be read again with a unit.
        return f"{value / 1000:.3f}kB" if isinstance(value, int) and value < 1000 else str(value)


class Seconds(OptionType):
    """A number of seconds, zero or more."""

    expected, metavar, accepts = "seconds, zero or more", "SECONDS", float

    def is_valid(self, value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0

    def as_text(self, value: Any) -> str:
        return repr(value).removesuffix(".0")  # all of its digits


class Word(OptionType):
    """Text, which the code that uses the option checks further."""

    accepts = str

    def __init__(self, expected: str, metavar: str) -> None:
        self.expected, self.metavar = expected, metavar

    def is_valid(self, value: object) -> bool:
        return isinstance(value, str)


class Choice(OptionType):
    """One of a few words."""

    accepts = str

    def __init__(self, *words: str) -> None:
        self.words = words
        self.expected, self.metavar = ", ".join(words[:-1]) + f" or {words[-1]}", "HOW"

    def is_valid(self, value: object) -> bool:
        return value in self.words


class Words(OptionType):
    """Several texts. On the command line, the option is repeated for each."""

    accepts = Sequence[str]
    repeatable = True

    def __init__(self, expected: str, metavar: str) -> None:
        self.expected, self.metavar = expected, metavar

    def read(self, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    def is_valid(self, value: object) -> bool:
        return isinstance(value, tuple | list) and all(isinstance(text, str) for text in value)


class Folder(OptionType):
    """The path of a folder. In Python ``~`` is the home folder, as in a shell.

    Args:
        what: the folder's purpose, in messages.
    """

    expected, metavar, accepts = "a path, as text or as a Path", "DIR", StrPath

    def __init__(self, what: str) -> None:
        self.what = what

    def read(self, value: object) -> object:
        return local_path(value, self.what) if is_path(value) else value

    def is_valid(self, value: object) -> bool:
        return isinstance(value, Path)

    def is_kept_as(self, value: object) -> bool:
        return isinstance(value, str) and "\0" not in value and Path(value).is_absolute()


class Address(OptionType):
    """The place of a mirror: a folder's path, or a URL.

    URLs are like ``hf://org/name`` or ``s3://bucket/prefix``.
    """

    expected, metavar, accepts = "a folder, hf://org/name, or s3://bucket/prefix", "DEST", StrPath

    def read(self, value: object) -> object:
        return read_address(value) if is_path(value) else value

    def is_valid(self, value: object) -> bool:
        return isinstance(value, str) and is_path(value)


def read_address(address: Any) -> str:
    """Return the text of an argument from Python that is a run's id, a URL, or a folder's path.

    In a path, ``~`` is expanded.
    """
    url = address_in(address)
    return url if url is not None else str(expand(address))
