"""Writes the page of a run, and replaces no other file."""

from __future__ import annotations

import stat
from pathlib import Path

from resumerge.errors import refuse
from resumerge.storage import Storage
from resumerge.ui.html.page import START, Run, page


def write_report(run: Run, file: Path) -> None:
    """Write a run's page.

    Args:
        run: one of the runs of ``resumerge status --json``.
        file: the path to write to.

    Raises:
        InputError: the file cannot be written, or is not such a page.
    """
    try:
        if not _may_replace(file):
            raise refuse(
                "The page would replace another file",
                where=str(file),
                expected="a new file, or a page that `resumerge status --html` wrote",
                found="a folder" if file.is_dir() else "another file",
                fix="choose another name, or remove this file first",
            )
        Storage().write_file(file, page(run).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise refuse(
            "The page cannot be written",
            where=str(file),
            found=str(error),
            fix="name a file in a folder that exists and that you can write to",
        ) from None


def _may_replace(file: Path) -> bool:
    """Return whether nothing would be lost: there is no file, an empty one, or a page of a run."""
    try:
        kind = file.lstat().st_mode
    except FileNotFoundError:
        return True
    if not stat.S_ISREG(kind):
        return False
    with file.open("rb") as stream:
        return stream.read(len(START)) in (b"", START.encode())
