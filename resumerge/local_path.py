"""Paths on this machine, in the form that users write.

`Path` turns the address ``s3://bucket`` into ``s3:/bucket``, the path of a folder. Paths are
therefore checked here, as text, when they enter the program.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from resumerge.errors import refuse
from resumerge.printable import without_secrets

OUTPUT = "output"

_URL = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(.*)", re.DOTALL)
"""The pattern of an address.

A `Path` keeps only one of two slashes. A folder ``s3:`` can be written as ``./s3:/…``.
"""


def local_path(path: object, what: str) -> Path:
    """Return a path from a user's text; ``~`` is the home folder, as in a shell.

    Args:
        path: the path as the user passed it, of any type.
        what: the purpose of the path for the message, like ``output``.

    Raises:
        InputError: the value cannot be a path, or is an address.
    """
    if not is_path(path):
        raise refuse(
            f"The {what} is not a path",
            expected="text, or a Path",
            found=repr(path),
            fix="write a path; an empty text may be a variable that is not set" if not path else "",
        )
    if address := address_in(path):
        address = without_secrets(address)
        scheme, _, path_text = address.partition("://")
        path_alone = f"write the path alone: /{path_text.lstrip('/')}"
        fix = path_alone if scheme == "file" else "name one on this machine"
        if what == OUTPUT and scheme != "file":
            fix += f"; --mirror {address} copies the model while it is merged"
        raise refuse(
            f"The {what} has to be on this machine",
            where=address,
            expected="a path",
            found=f"an address that begins with {scheme}",
            fix=fix,
        )
    return expand(path)


def is_within(path: Path, folder: Path) -> bool:
    """Return whether a path is equal to a folder or lies inside it; the path need not exist.

    Folders are compared by device and inode, not by name, because a disk may ignore case (macOS),
    and a folder may be mounted in two places.
    """
    inner_path, outer_folder = path.absolute().resolve(), folder.absolute().resolve()
    if inner_path.is_relative_to(outer_folder):
        return True
    try:
        folder_status = outer_folder.stat()
    except OSError:
        return False
    return any(_is_same_file(parent, folder_status) for parent in (inner_path, *inner_path.parents))


def _is_same_file(path: Path, found: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(path.stat(), found)
    return False


def address_in(value: object) -> str | None:
    """Return the address in a value, even if `Path` removed a slash; None if there is none."""
    url = _URL.fullmatch(str(value)) if is_path(value) else None
    return f"{url[1]}://{url[2]}" if url else None


def is_path(value: object) -> bool:
    """Return whether a value can be a path or an address: a nonempty text or `Path`."""
    return isinstance(value, (str, os.PathLike)) and bool(str(value)) and "\0" not in str(value)


def expand(path: Any) -> Path:
    """Return a path with ``~`` replaced by the home folder, as in a shell."""
    with suppress(RuntimeError):  # an unknown user: a shell also leaves ``~name`` as it is
        return Path(path).expanduser()
    return Path(path)
