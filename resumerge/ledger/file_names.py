"""The names of files and folders from an untrusted source that are safe to use."""

from __future__ import annotations

from pathlib import PurePosixPath

METADATA = ".resumerge"
"""The folder in a mirror that holds lease, snapshots and manifest; no file of a model is in it."""


def is_safe_name(name: object) -> bool:
    """Return whether a name can be that of a model's file: it stays inside any folder."""
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
    """Return whether a visible folder or file can be made by a name in the working folder."""
    return is_safe_name(name) and "/" not in str(name) and not str(name).startswith(".")
