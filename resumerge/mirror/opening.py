"""A mirror by its address."""

from __future__ import annotations

from pathlib import Path

from resumerge.errors import refuse
from resumerge.mirror.folder import FolderPlace
from resumerge.mirror.place import Place

HUB = "hf://"


def open_place(url: str) -> Place:
    """The place that a user named; it is not looked at yet.

    Raises:
        InputError: it cannot be a mirror.
    """
    if url.startswith(HUB):
        raise refuse("A mirror on the Hub is not there yet", where=url, fix="name a folder")
    return FolderPlace(Path(url).expanduser().absolute())
