"""Sets up the replicator of one attempt."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.ledger import Ledger
from resumerge.mirror import ReplicationOptions, Replicator
from resumerge.options import MIRROR_WAIT, Options
from resumerge.storage import Storage


def replicator_of(
    mirror: MirrorSession,
    ledger: Ledger,
    out: Path,
    options: Options,
    storage: Storage,
    reporter: Reporter,
) -> Replicator:
    """The replicator of a run's mirror, for one attempt; it has the mirror's lease.

    Raises:
        InputError: another machine has the lease, or the mirror is read-only.
        Resumable: the mirror cannot be reached.
    """
    lease = mirror.acquire_lease((ledger.run() or {})["id"])
    replication = replication_options(options)
    return Replicator(
        mirror.store, lease, ledger, out, replication, storage, reporter.note, reporter.waiting
    )


def replication_options(options: Options) -> ReplicationOptions:
    """How the run is mirrored, by its options."""
    wait = options.mirror_wait
    return ReplicationOptions(
        then_delete=bool(options.mirror_then_delete),
        rate=options.mirror_rate,
        stall_seconds=MIRROR_WAIT if wait is None else wait,
    )
