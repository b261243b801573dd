"""A mirror by its address."""

from __future__ import annotations

from pathlib import Path

from resumerge.mirror.folder import FolderPlace
from resumerge.mirror.held import is_mirror
from resumerge.mirror.names import SCHEME
from resumerge.mirror.place import Place


def open_place(url: str, *, offline: bool = False) -> Place:
    """The place that a user named; it is not looked at yet.

    Raises:
        InputError: it cannot be a mirror, or is on the Hub, and the network is off.
    """
    if url.startswith(SCHEME):
        from resumerge.mirror.hub_place import HubPlace

        return HubPlace(url, offline=offline)
    return FolderPlace(Path(url).expanduser().absolute())


def names_mirror(wanted: str) -> bool:
    """Whether what a user named can only be a mirror, and not a run or its output."""
    try:
        return wanted.startswith(SCHEME) or is_mirror(Path(wanted).expanduser())
    except (OSError, RuntimeError, ValueError):
        return False
