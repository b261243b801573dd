"""Paths on this machine, as a user writes them.

`Path` turns ``s3://bucket`` into ``s3:/bucket``, a folder that nobody asked for. A path is
therefore checked here, as text, when it enters the program.
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

One slash is left of two in a `Path`. A folder ``s3:`` can be written ``./s3:/…``.
"""


def local_path(path: object, what: str) -> Path:
    """Return a path that a user gave; ``~`` is the home folder, as it is in a shell.

    Args:
        path: the path as given.
        what: the purpose of the path, for the message: ``output``.

    Raises:
        InputError: the value cannot be a path, or is an address of something elsewhere.
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
        scheme, _, rest = address.partition("://")
        path_alone = f"write the path alone: /{rest.lstrip('/')}"
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
    """Return whether a path, which need not exist, is a folder or lies inside it.

    Folders are compared as the system does, not by their names: a disk may ignore their case
    (macOS), and a folder may be mounted at two places.
    """
    inner, outer = path.absolute().resolve(), folder.absolute().resolve()
    if inner.is_relative_to(outer):
        return True
    try:
        found = outer.stat()
    except OSError:
        return False
    return any(_is(parent, found) for parent in (inner, *inner.parents))


def _is(path: Path, found: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(path.stat(), found)
    return False


def address_in(value: object) -> str | None:
    """Return the address that a value is meant as, even if a `Path` dropped a slash; or None."""
    url = _URL.fullmatch(str(value)) if is_path(value) else None
    return f"{url[1]}://{url[2]}" if url else None


def is_path(value: object) -> bool:
    """Return whether a value can be a path, or an address."""
    return isinstance(value, (str, os.PathLike)) and bool(str(value)) and "\0" not in str(value)


def expand(path: Any) -> Path:
    """Return a path in which ``~`` is the home folder, as in a shell."""
    with suppress(RuntimeError):  # the home of an unknown user: a shell leaves it as it is, too
        return Path(path).expanduser()
    return Path(path)
