"""Writing of pages to files. A file that is not a page is never replaced."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.errors import refuse
from resumerge.storage import Storage
from resumerge.ui.html import comparison, explanation, search
from resumerge.ui.html.page import START, Run, page

STARTS = (START, comparison.START, explanation.START, search.START)
"""The first lines of pages. A file that begins with one of them may be replaced by a new page."""


def write_report(run: Run, file: Path) -> None:
    """Write a run's page to a file.

    Args:
        run: one of the runs of ``resumerge status --json``.
        file: the path to write to; a page that is there is replaced.

    Raises:
        InputError: the file cannot be written, or exists and is not a page.
    """
    write_page(lambda: page(run), file)


def write_page(make: Callable[[], str], file: Path) -> None:
    """Write a page to a file.

    Args:
        make: returns the page; called after the check of the file.
        file: the path to write to; a page that is there is replaced.

    Raises:
        InputError: the file cannot be written, or exists and is not a page.
    """
    check_page_file(file)
    with _refuse_if_unwritable(file):
        Storage().write_file(file, make().encode("utf-8", "backslashreplace"))


def check_page_file(file: Path) -> None:
    """Check, before the work for a page, that the page would replace no other file.

    Raises:
        InputError: the file exists and is not a page, or its folder does not exist.
    """
    with _refuse_if_unwritable(file):
        if not _may_replace(file):
            raise refuse(
                "The page would replace another file",
                where=str(file),
                expected="a new file, or a page that `--html` wrote",
                found="a folder" if file.is_dir() else "another file",
                fix="choose another name, or remove this file first",
            )
        file.parent.stat()


@contextmanager
def _refuse_if_unwritable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refuse(
            "The page cannot be written",
            where=str(file),
            found=str(error),
            fix="name a file in a folder that exists and that you can write to",
        ) from None


def _may_replace(file: Path) -> bool:
    """Return whether a file may be replaced: it is missing, empty, or a page."""
    try:
        kind = file.lstat().st_mode
    except FileNotFoundError:
        return True
    if not stat.S_ISREG(kind):
        return False
    with file.open("rb") as stream:
        first_bytes = stream.read(max(map(len, STARTS)))
    return not first_bytes or any(first_bytes.startswith(start.encode()) for start in STARTS)
