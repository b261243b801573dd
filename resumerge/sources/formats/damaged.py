"""Files of a model that are not what their format says."""

from __future__ import annotations

from resumerge.errors import InputError, refuse


def damaged(what: str, where: str, expected: str, found: str) -> InputError:
    """That a file is damaged, to be raised.

    Args:
        what: the kind of file, like "safetensors file".
        where: the file.
    """
    return refuse(
        f"The {what} is damaged",
        where=where,
        expected=expected,
        found=found,
        fix="download or save this file again",
    )
