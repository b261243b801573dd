"""Leases of other machines, and of processes of this one."""

from __future__ import annotations

import os
import time
from typing import Any

from plain_folder import PlainFolder

from resumerge.host.machine import boot_id, hostname
from resumerge.host.processes import pid_space
from resumerge.ledger import now
from resumerge.mirror import Lease
from resumerge.mirror.lease_record import LeaseRecord
from resumerge.mirror.names import lease_name

SECONDS = 2.0
"""How long a lease of a test lasts. It is lost if its thread does not run for half of that."""

ELSEWHERE = LeaseRecord("run", "somebody", "elsewhere", "boot", "pids", 77, 1, 1, now(), SECONDS)
HERE = LeaseRecord(
    "run", "dead", hostname(), boot_id(), pid_space(), os.getpid(), 1, 1, now(), 600.0
)


def write(store: PlainFolder, record: LeaseRecord, token: int = 1) -> None:
    store.put({lease_name(token): record.as_bytes()})


def seconds_to_acquire(store: PlainFolder, leases: list[Lease], **options: Any) -> float:
    began = time.monotonic()
    leases.append(Lease.acquire(store, "run", **options))
    return time.monotonic() - began
