"""Errors in the code of users: they are reported with their place, not as bugs of this package."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.errors import ResumergeError, refuse

PACKAGE = str(Path(__file__).parents[1])


@contextmanager
def refused(what: str, where: object, file: str | None = None) -> Iterator[None]:
    """Refuse the run if code of the user raises anything inside, even `SystemExit`.

    Args:
        what: the problem, for the message.
        where: the place of the problem, for the message.
        file: the file of the code; None if it is unknown.

    Raises:
        InputError: the code raised something; the message has the line.
    """
    try:
        yield
    except ResumergeError:
        raise
    except BaseException as error:
        found = raised(error, file)
        raise refuse(what, where=where, found=found, fix=_remedy(error)) from error


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return f"install what it imports, like: pip install {error.name.partition('.')[0]}"
    return "see docs/extending.md"


def raised(error: BaseException, file: str | None) -> str:
    """Return an exception with its place, in a line: ``ValueError: no (mine.py, line 12)``."""
    told = f"{type(error).__name__}: {error}".removesuffix(": ")
    has_line = isinstance(error, SyntaxError)
    return told if has_line else f"{told} ({line_of(error, file)})"


def line_of(error: BaseException, file: str | None) -> str:
    """Return the last line of a file that an error went through, or else the last line of all."""
    frames = traceback.extract_tb(error.__traceback__)
    last = ([frame for frame in frames if frame.filename == file] or frames)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"


def is_raised_in(file: str | None, error: BaseException) -> bool:
    """Return whether an error was raised by a file, or by what it called outside the package."""
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    theirs = max((i for i, name in enumerate(names) if name == file), default=-1)
    ours = max((i for i, name in enumerate(names) if name.startswith(PACKAGE)), default=-1)
    return theirs > ours
