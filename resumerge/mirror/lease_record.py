"""A lease as it is written down in a mirror, by whoever: ``.resumerge/lease-EEEEEE.json``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from resumerge.ledger import now
from resumerge.mirror.stores.base import METADATA, Store
from resumerge.printable import printable

DONE = f"{METADATA}/done.json"
"""There when the run is finished."""

LARGEST_LEASE = 1 << 16

_LEASE = re.compile(rf"{re.escape(METADATA)}/lease-([0-9]{{6,9}})\.json", re.ASCII)
_EPOCH = re.compile(rf"{re.escape(METADATA)}/(?:lease|ledger)-([0-9]{{6,9}})[-.].*", re.ASCII)


@dataclass(frozen=True)
class LeaseRecord:
    """Who holds a lease.

    Args:
        owner: random, another one for each lease.
        space, born: tell whether a process with this number is the one that is meant.
        beat: counts the heart's beats.
        at: the time of the last one, ISO 8601, by the holder's clock.
        seconds: it is dead when it did not change for so long.
        released: it ended in order; anybody may go on.
        raw: the file's bytes.
        known: whether they could be read as a lease.
    """

    run: str = ""
    owner: str = ""
    host: str = "an unknown machine"
    boot_id: str = ""
    space: str = ""
    pid: int = 0
    born: int = 0
    heartbeat: int = 0
    at: str = ""
    seconds: float = 60.0
    released: bool = False
    epoch: int = 0
    raw: bytes = b""
    known: bool = True

    def __str__(self) -> str:
        return printable(f"pid {self.pid} on {self.host}" if self.known else self.host)

    def claiming(self, epoch: int) -> LeaseRecord:
        """The same, of another epoch."""
        return replace(self, epoch=epoch, at=now())

    def beating(self, *, released: bool) -> LeaseRecord:
        """A beat later."""
        return replace(self, heartbeat=self.heartbeat + 1, at=now(), released=released)

    def as_bytes(self) -> bytes:
        """For the file."""
        written = {k: v for k, v in asdict(self).items() if k not in ("epoch", "raw", "known")}
        return json.dumps(written).encode() + b"\n"


def lease_name(epoch: int) -> str:
    """Of the lease of an epoch, in a mirror."""
    return f"{METADATA}/lease-{epoch:06}.json"


def epochs(files: Iterable[str]) -> list[int]:
    """Those of all leases and snapshots among these names."""
    return [int(match[1]) for name in files if (match := _EPOCH.fullmatch(name))]


def holder_of(store: Store, files: Mapping[str, int] | None = None) -> LeaseRecord | None:
    """Who holds the lease of the highest epoch; None where there is none.

    Args:
        files: of the place, where they were listed already.

    Raises:
        OSError: the place cannot be read now.
    """
    files = store.list() if files is None else files
    found = {int(match[1]): name for name in files if (match := _LEASE.fullmatch(name))}
    for epoch in sorted(found, reverse=True):
        if files[found[epoch]] > LARGEST_LEASE:
            return LeaseRecord(epoch=epoch, raw=b"too large", known=False)
        try:
            return _read(store.get(found[epoch]), epoch)
        except FileNotFoundError:  # it was removed since
            continue
    return None


def _read(raw: bytes, epoch: int) -> LeaseRecord:
    """A lease from a file that anybody may have written, or that is just being written."""
    try:
        told: Any = json.loads(raw)
        facts = {
            field.name: told[field.name]
            for field in fields(LeaseRecord)
            if field.name not in ("epoch", "raw", "known")
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        return LeaseRecord(epoch=epoch, raw=raw, known=False)
    default = LeaseRecord()
    for name, value in facts.items():
        kind = (int, float) if name == "seconds" else type(getattr(default, name))
        unfit = not isinstance(value, kind) or (isinstance(value, str) and len(value) > 300)
        if unfit or (name == "seconds" and not math.isfinite(value)):
            return LeaseRecord(epoch=epoch, raw=raw, known=False)
    return LeaseRecord(**facts, epoch=epoch, raw=raw)
