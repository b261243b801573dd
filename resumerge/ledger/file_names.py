"""Checks of file and folder names that come from an untrusted source."""

from __future__ import annotations

from pathlib import PurePosixPath

METADATA = ".resumerge"
"""The folder in a mirror for the lease, snapshots and manifest. A model has no files in it."""


def is_safe_name(name: object) -> bool:
    """Return whether a name is safe for a model's file: a relative path without ``..``."""
    if not isinstance(name, str) or not name.isprintable() or "\\" in name or len(name) > 1000:
        return False
    path = PurePosixPath(name)
    parts = path.parts
    return (
        bool(parts)
        and str(path) == name
        and not path.is_absolute()
        and all(part != ".." and len(part.encode(errors="replace")) <= 200 for part in parts)
        and parts[0] != METADATA
    )


def is_output_name(name: object) -> bool:
    """Return whether a name is safe for a visible file or folder in the working folder."""
    return is_safe_name(name) and "/" not in str(name) and not str(name).startswith(".")
