"""Errors in the code of users: reported with their place, and not as bugs of this package."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.errors import ResumergeError, StopSignal, refuse

PACKAGE = str(Path(__file__).parents[1])


@contextmanager
def refused(what: str, where: object, file: str | None = None) -> Iterator[None]:
    """Refuse the run if the body of the ``with`` block raises anything, even `SystemExit`.

    A `ResumergeError` and a stop signal are raised unchanged.

    Args:
        what: the problem, for the message.
        where: the place of the problem, for the message.
        file: the file of the user's code; None if it is unknown.

    Raises:
        InputError: the code raised something; the message contains the line.
    """
    try:
        yield
    except (ResumergeError, StopSignal):
        raise
    except BaseException as error:
        description = raised(error, file)
        raise refuse(what, where=where, found=description, fix=_remedy(error)) from error


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return f"install what it imports, like: pip install {error.name.partition('.')[0]}"
    return "see docs/extending.md"


def raised(error: BaseException, file: str | None) -> str:
    """Return an exception with its place, as one line: ``ValueError: no (mine.py, line 12)``."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    has_line = isinstance(error, SyntaxError)
    return text if has_line else f"{text} ({line_of(error, file)})"


def line_of(error: BaseException, file: str | None) -> str:
    """Return the innermost line of a file in an error's traceback, or else of any file."""
    frames = traceback.extract_tb(error.__traceback__)
    innermost = ([frame for frame in frames if frame.filename == file] or frames)[-1]
    return f"{Path(innermost.filename).name}, line {innermost.lineno}"


def is_raised_in(file: str | None, error: BaseException) -> bool:
    """Return whether a file, or code that it called outside the package, raised an error."""
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    last_in_file = max((i for i, name in enumerate(names) if name == file), default=-1)
    last_here = max((i for i, name in enumerate(names) if name.startswith(PACKAGE)), default=-1)
    return last_in_file > last_here
