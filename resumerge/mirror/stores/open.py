"""A mirror by its address."""

from __future__ import annotations

import re
from pathlib import Path

from resumerge.errors import refuse
from resumerge.mirror.names import SCHEME
from resumerge.mirror.state import is_mirror
from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.folder import FolderStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(url: str, *, offline: bool = False) -> Store:
    """The place that a user named; it is not looked at yet.

    Raises:
        InputError: it cannot be a mirror, or is on the Hub, and the network is off.
    """
    if url.startswith(SCHEME):
        from resumerge.mirror.stores.hub import HubStore

        return HubStore(url, offline=offline)
    if scheme := _SCHEME.match(url):
        raise refuse(
            "This cannot be a mirror",
            where=url,
            expected="a folder whose parent is there, or hf://org/name",
            found=f"an address of {scheme[1]}",
            fix="name a folder, or a repo of the Hub; other storage has to be mounted as a folder",
        )
    return FolderStore(Path(url).expanduser().absolute())


def names_mirror(wanted: str) -> bool:
    """Whether what a user named can only be a mirror, and not a run or its output."""
    try:
        return wanted.startswith(SCHEME) or is_mirror(Path(wanted).expanduser())
    except (OSError, RuntimeError, ValueError):
        return False
