"""Text from elsewhere, made fit to be shown: paths, names and messages that others chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.ui.sizes import show_size

_BYTES = {"before", "after", "rss", "available", "budget", "limit", "taken", "used", "needed"}


def plain(text: object) -> str:
    """The text in one line without control characters, which could drive a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def plain_time(at: str | None) -> str:
    """A time of the ledger as ``2026-11-21 15:29:04``, in UTC."""
    return plain((at or "")[:19].replace("T", " "))


def told_event(event: Mapping[str, Any]) -> str:
    """What an event says of itself, in one line, whatever its kind."""
    data = dict(event["data"])
    told = [str(data.pop("reason").split("\n")[0])] if isinstance(data.get("reason"), str) else []
    data.pop("reason", None)
    if {"before", "after"} <= data.keys():
        told.append(
            f"{_shown('before', data.pop('before'))} to {_shown('after', data.pop('after'))}"
        )
    told += [f"{key.replace('_', ' ')} {_shown(key, value)}" for key, value in data.items()]
    return plain(", ".join(told))


def _shown(key: str, value: object) -> str:
    if isinstance(value, int) and (key in _BYTES or "bytes" in key):
        return show_size(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
