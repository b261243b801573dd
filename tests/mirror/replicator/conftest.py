"""A replicator that a test begins."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import replication as replications
from made_up_leases import SECONDS
from replication import Replication, Watched
from virtual_time import virtual_time

from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.mirror import Lease
from resumerge.retry import Backoff


@pytest.fixture
def replication(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Replication]:
    """Yield a replication that has not begun; its time, and that of the test, is virtual."""
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", str(SECONDS))
    monkeypatch.setattr("resumerge.mirror.replicator.BACKOFF", Backoff(first=0.01, longest=0.05))
    monkeypatch.setattr("resumerge.mirror.replicator.CHECK_SECONDS", 0.02)
    (run,) = RunStore(made / "merged.state").runs()
    shutil.copytree(run, tmp_path / "run")
    shutil.copytree(made / "merged", tmp_path / "merged")
    ledger = Ledger(tmp_path / "run" / "ledger.db")
    store = Watched(tmp_path / "mirror")
    ledger.set_mirror(store.url)
    with virtual_time(request.module, replications):
        replication = Replication(ledger, tmp_path / "merged", store, Lease.acquire(store, "run"))
        yield replication
        store.fails = lambda operation: None
        replication.replicator.close()
        replication.lease.stop()
    ledger.close()
