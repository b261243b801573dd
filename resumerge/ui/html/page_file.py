"""Writes pages, and replaces no file that is not a page."""

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
"""The first lines of pages, which may be replaced by new ones."""


def write_report(run: Run, file: Path) -> None:
    """Write a run's page.

    Args:
        run: one of the runs of ``resumerge status --json``.
        file: the path to write to.

    Raises:
        InputError: the file cannot be written, or is not a page.
    """
    write_page(lambda: page(run), file)


def write_page(make: Callable[[], str], file: Path) -> None:
    """Write a page.

    Args:
        make: returns the page, once the file may be written.
        file: the path to write to.

    Raises:
        InputError: the file cannot be written, or is not a page.
    """
    check_page_file(file)
    with _told_if_unwritable(file):
        Storage().write_file(file, make().encode("utf-8", "backslashreplace"))


def check_page_file(file: Path) -> None:
    """Check, before there is a page, that writing one replaces no other file.

    Raises:
        InputError: there is another file, or the folder does not exist.
    """
    with _told_if_unwritable(file):
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
def _told_if_unwritable(file: Path) -> Iterator[None]:
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
        begins = stream.read(max(map(len, STARTS)))
    return not begins or any(begins.startswith(start.encode()) for start in STARTS)
