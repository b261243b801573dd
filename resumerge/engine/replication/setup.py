"""The mirror of a run, for the time that one attempt works on it."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.replication.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.ledger import Ledger
from resumerge.mirror import ReplicationOptions, Replicator
from resumerge.options import MIRROR_WAIT, Options
from resumerge.storage import Storage


def replicator_of(
    far: MirrorSession,
    ledger: Ledger,
    out: Path,
    options: Options,
    storage: Storage,
    reporter: Reporter,
) -> Replicator:
    """The run's mirror, for one attempt; this process holds it from now on.

    Raises:
        InputError: another machine works there, or nothing can be written there.
        Resumable: it cannot be reached.
    """
    lease = far.hold((ledger.run() or {})["id"])
    replication = replication_options(options)
    return Replicator(far.store, lease, ledger, out, replication, storage, reporter.note)


def replication_options(options: Options) -> ReplicationOptions:
    """How a run is to be mirrored, as its options say."""
    wait = options.mirror_wait
    return ReplicationOptions(
        then_delete=bool(options.mirror_then_delete),
        rate=options.mirror_rate,
        stall_seconds=MIRROR_WAIT if wait is None else wait,
    )
