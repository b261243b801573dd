"""Times and events of the ledger, made fit to be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.printable import printable
from resumerge.report.sizes import show_size

_BYTES = {"before", "after", "rss", "available", "budget", "limit", "taken", "used", "needed"}


def plain_time(at: str | None) -> str:
    """A time of the ledger as ``2026-11-21 15:29:04``, in UTC."""
    return printable((at or "")[:19].replace("T", " "))


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
    return printable(", ".join(told))


def _shown(key: str, value: object) -> str:
    if isinstance(value, int) and (key in _BYTES or "bytes" in key):
        return show_size(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
