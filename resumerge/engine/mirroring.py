"""The mirror of a run, for the time that one attempt works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.engine.options import MIRROR_WAIT, Options
from resumerge.engine.report import Reporter
from resumerge.ledger import Ledger
from resumerge.mirror import Lease, Manner, Mirror
from resumerge.mirror.opening import open_place
from resumerge.storage import Storage


@contextmanager
def mirroring(
    ledger: Ledger, out: Path, options: Options, storage: Storage, reporter: Reporter
) -> Iterator[Mirror | None]:
    """The run's mirror, held by this process inside; None where it has none.

    Raises:
        InputError: another machine works there, or nothing can be written there.
        Resumable: it cannot be reached.
    """
    row = ledger.run() or {}
    if not row["mirror"]:
        yield None
        return
    place = open_place(row["mirror"])
    lease = Lease.take(
        place, row["id"], take_over=options.take_over, note=reporter.note, beat=reporter.beat
    )
    try:
        yield Mirror(
            place,
            lease,
            ledger,
            out,
            manner_of(options),
            storage,
            reporter.note,
        )
    finally:
        lease.release()


def manner_of(options: Options) -> Manner:
    """How a run is to be mirrored, as its options say."""
    wait = options.mirror_wait
    return Manner(
        then_delete=bool(options.mirror_then_delete),
        rate=options.mirror_rate,
        patience=MIRROR_WAIT if wait is None else wait,
    )
