"""The content of a lease file, ``.resumerge/lease-TTTTTT.json``. It is untrusted input."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from resumerge.ledger import now
from resumerge.mirror.names import leases
from resumerge.mirror.stores.base import Store
from resumerge.printable import printable

LARGEST_LEASE = 1 << 16
"""The largest size of a lease file in bytes."""

LONGEST_SECONDS = 3600.0
"""The upper limit in seconds of a lease's lifetime, even if its record has a higher value."""

_KEYS = {"heartbeat": "beat"}
"""The fields whose key in the file differs from the field's name."""

_NOT_IN_FILE = ("token", "raw", "readable")


@dataclass(frozen=True)
class LeaseRecord:
    """The record of a lease, which names the process that holds it.

    Args:
        run: the id of the run whose mirror the owner may write to.
        owner: a random text, different for each lease.
        host: the name of the owner's machine.
        boot_id: an id that changes with every boot of that machine.
        space: the PID namespace that `pid` belongs to.
        pid: the owner's process id.
        born: the start time of the process, which distinguishes it from a later process with the
            same `pid`; 0 if unknown.
        heartbeat: the number of renewals.
        at: the time of the last renewal, ISO 8601, by the owner's clock.
        seconds: the time without a change of the file after which the owner is dead; see
            `lifetime`.
        released: whether the owner has released the lease, so that anybody may take the next one.
        token: the fencing token, from the file's name.
        raw: the file's bytes.
        readable: whether the bytes are a valid record; if not, only `token` and `raw` are set.
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
    token: int = 0
    raw: bytes = b""
    readable: bool = True

    def __str__(self) -> str:
        return printable(f"pid {self.pid} on {self.host}" if self.readable else self.host)

    @property
    def lifetime(self) -> float:
        """The seconds without a renewal after which the owner is dead."""
        return min(max(self.seconds, 0.0), LONGEST_SECONDS)

    def age(self, now: datetime) -> float | None:
        """Return the seconds since the last renewal; None if `at` is not a time with a zone.

        Args:
            now: the present time, with a zone. By a clock that is behind the owner's, the age can
                be negative.
        """
        try:
            return (now - datetime.fromisoformat(self.at)).total_seconds()
        except (ValueError, TypeError):
            return None

    def is_dead(self, age: float, clock_error: float) -> bool:
        """Return whether a lease of this age is dead.

        Two callers use different clock errors: one takes over the lease, one shows it in a status.

        Args:
            age: the seconds since the last renewal.
            clock_error: the seconds by which the clock behind `age` may differ from the owner's.
        """
        return age > self.lifetime + clock_error

    def with_token(self, token: int) -> LeaseRecord:
        """Return this record with a fencing token, renewed now."""
        return replace(self, token=token, at=now())

    def renewed(self, *, released: bool) -> LeaseRecord:
        """Return this record with one more renewal, at the present time."""
        return replace(self, heartbeat=self.heartbeat + 1, at=now(), released=released)

    def as_bytes(self) -> bytes:
        """Return the content of the file."""
        values_by_key = {key: getattr(self, name) for name, key in _file_keys().items()}
        return json.dumps(values_by_key).encode() + b"\n"


def read_lease(store: Store, files: Mapping[str, int] | None = None) -> LeaseRecord | None:
    """Return the lease with the highest fencing token; None if the mirror has no lease.

    Args:
        store: the store of the mirror, from which the lease's file is read anew.
        files: a recent listing of the store; None to list it here.

    Raises:
        OSError: the store cannot be read now.
    """
    files = store.list() if files is None else files
    for token, name in sorted(leases(files).items(), reverse=True):
        try:
            return _parse(store.get(name, LARGEST_LEASE), token)
        except FileNotFoundError:  # its owner has removed it since the listing
            continue
    return None


def _parse(raw: bytes, token: int) -> LeaseRecord:
    """Return the record in untrusted bytes.

    If the bytes are not a valid record, the result has `readable` False.
    """
    unreadable_record = LeaseRecord(token=token, raw=raw, readable=False)
    try:
        content: Any = json.loads(raw)
        values_by_name = {name: content[key] for name, key in _file_keys().items()}
    except (ValueError, TypeError, KeyError, RecursionError):
        return unreadable_record
    default_record = LeaseRecord()
    for name, value in values_by_name.items():
        kind = (int, float) if name == "seconds" else type(getattr(default_record, name))
        if not isinstance(value, kind) or (isinstance(value, str) and len(value) > 300):
            return unreadable_record
    if not math.isfinite(values_by_name["seconds"]):
        return unreadable_record
    return LeaseRecord(**values_by_name, token=token, raw=raw)


def _file_keys() -> dict[str, str]:
    """Return the key in the file of each stored field, by the name of the field."""
    names = (field.name for field in fields(LeaseRecord) if field.name not in _NOT_IN_FILE)
    return {name: _KEYS.get(name, name) for name in names}
