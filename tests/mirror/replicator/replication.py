"""A replicator whose run has computed everything, and a mirror that reports what is done to it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from made_up_leases import ELSEWHERE, SECONDS, write
from plain_folder import PlainFolder
from waiting import wait_until

from resumerge.errors import Resumable
from resumerge.ledger import Ledger
from resumerge.mirror import Lease, ReplicationOptions, Replicator
from resumerge.mirror.stores.base import Moved
from resumerge.storage import Storage

COMPANIONS = [("README.md", b"# a model\n"), ("config.json", b"{}\n")]


class Watched(PlainFolder):
    """A folder that reports each upload, and moves a shard in pieces."""

    pieces = 4

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        self.fails(f"upload {name}")
        size = path.stat().st_size
        for _ in range(self.pieces):
            self.fails(f"piece of {name}")
            moved(size // self.pieces)
        sha256 = super().upload(name, path, moved)
        self.fails(f"uploaded {name}")
        return sha256

    def put(self, files: Any, remove: Any = ()) -> None:
        super().put(files, remove)
        for name in files:
            if "lease-" not in name:
                self.fails(f"written {name}")


@dataclass
class Replication:
    """An attempt that has sealed all its shards, and its mirror."""

    ledger: Ledger
    out: Path
    store: Watched
    lease: Lease
    notes: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    replicator: Replicator = field(init=False)

    def make(self, **options: Any) -> Replicator:
        given = ReplicationOptions(**options)
        parts = (self.store, self.lease, self.ledger, self.out, given, Storage())
        self.replicator = Replicator(*parts, self.notes.append, self.waits.append)
        return self.replicator

    def begin(self, **options: Any) -> Replicator:
        self.make(**options).start()
        return self.replicator

    def finish(self) -> None:
        self.replicator.finish(lambda: COMPANIONS, lambda: None)

    def lose(self) -> None:
        """Let another machine take over, and wait until this one notices it."""
        write(PlainFolder(self.store.folder), ELSEWHERE, 2)
        wait_until(lambda: self.lease.is_lost)

    def lose_at(self, operation: str) -> None:
        """Lose the lease during the first operation whose name begins like this."""

        def happens(name: str) -> None:
            if name.startswith(operation) and not self.lease.is_lost:
                self.lose()

        self.store.fails = happens

    def fail_uploads(self, error: Exception, times: int = sys.maxsize) -> None:
        failures = iter(range(times))

        def happens(name: str) -> None:
            if name.startswith("upload ") and next(failures, None) is not None:
                raise error

        self.store.fails = happens

    def wait_until_over(self) -> None:
        """Wait until the lease is lost, and for all that the thread might still do."""
        with pytest.raises(Resumable, match="Another machine has taken over"):
            while True:
                self.replicator.check()
                time.sleep(0.01)
        time.sleep(SECONDS)

    def model(self) -> dict[str, int]:
        """Return the files in the mirror that are not metadata, and their sizes."""
        listed = PlainFolder(self.store.folder).list()
        return {name: n for name, n in listed.items() if not name.startswith(".resumerge/")}

    def shards(self) -> set[str]:
        return {path.name for path in self.out.glob("*.safetensors")}

    def events(self) -> list[str]:
        return [event["kind"] for event in self.ledger.events.all() if "mirror" in event["kind"]]
