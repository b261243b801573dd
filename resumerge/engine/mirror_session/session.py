"""The mirror of a run during one command: its store and its lease."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Reason, Resumable
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import is_output_in
from resumerge.mirror import ReplicationOptions, Replicator
from resumerge.mirror.lease import Lease
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.state import MirrorState, read_state
from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.registry import open_store
from resumerge.options import MIRROR_WAIT, Options
from resumerge.storage import Storage


class MirrorSession:
    """A mirror in use by this process, which holds the lease from `acquire_lease` to `release`.

    Attributes:
        store: the store that contains the mirror.
        has_had_lease: whether this session has ever acquired the lease.
    """

    def __init__(self, url: str, options: Options, reporter: Reporter, stop: StopRequest) -> None:
        """Open the store at an address.

        Args:
            url: the mirror's address, as the user or the ledger names it.
            options: the options of the command: `offline`, `mirror_wait` and `take_over` are used.
            reporter: receives notes and heartbeats.
            stop: the request to stop that signals set.

        Raises:
            InputError: no kind of store accepts the address.
        """
        self.store: Store = open_store(url, offline=options.offline)
        if options.mirror_wait is not None:
            self.store.patience = min(self.store.patience, options.mirror_wait)
        self._take_over, self._reporter, self._stop = options.take_over, reporter, stop
        self._lease: Lease | None = None
        self.has_had_lease = False

    @property
    def url(self) -> str:
        """The normalised address, as the ledger records it."""
        return self.store.url

    def set_noun_for(self, output: Path) -> None:
        """Make messages call the store an output if the run's output is in a bucket."""
        if is_output_in(output, self.url):
            self.store.noun = "output"

    def check_mounted(self) -> None:
        """Check that the parent of a mirror's folder exists.

        Raises:
            Resumable: the parent does not exist. The drive is probably not mounted.
        """
        folder = self.store.local_folder
        if folder is not None and not folder.parent.is_dir():
            raise Resumable(
                Reason.MIRROR,
                f"The {self.store.place} cannot be reached: the folder {folder.parent} does not "
                "exist. Mount the drive, then resume; nothing that was merged is lost",
            )

    def read_state(self, ledger: Path) -> MirrorState:
        """Return the state of the mirror; see `resumerge.mirror.state.read_state`.

        Args:
            ledger: the path where the ledger in the mirror's snapshot is written.

        Raises:
            InputError: the store denies access.
            Resumable: the mirror cannot be reached.
        """
        return retry_store(self.store, lambda: read_state(self.store, ledger))

    def files(self) -> dict[str, int]:
        """Return the size in bytes of every file in the mirror, by name.

        Raises:
            InputError: the store denies access.
            Resumable: the mirror cannot be reached.
        """
        return retry_store(self.store, self.store.list)

    def acquire_lease(self, run: str) -> Lease:
        """Return the lease. The first call acquires it.

        Raises:
            InputError: another machine is working on the mirror, or it is read-only.
            Resumable: the mirror cannot be reached.
        """
        if self._lease is None:
            self._lease = Lease.acquire(
                self.store,
                run,
                take_over=self._take_over,
                note=self._reporter.note,
                heartbeat=self._reporter.heartbeat,
            )
            self.has_had_lease = True
        return self._lease

    def replicator(
        self, ledger: Ledger, out: Path, options: Options, storage: Storage
    ) -> Replicator:
        """Return the replicator of a run for one attempt, with the mirror's lease.

        Args:
            ledger: the ledger of the run, which records each file that the mirror has.
            out: the folder of the run's shards, from which they are uploaded.
            options: the run's options, which include those that the command inherits.
            storage: the operations on files.

        Raises:
            InputError: another machine has the lease, or the mirror is read-only.
            Resumable: the mirror cannot be reached.
        """
        self.set_noun_for(out)
        lease, reporter = self.acquire_lease(ledger.run()["id"]), self._reporter
        wait_seconds = options.mirror_wait
        replication = ReplicationOptions(
            then_delete=bool(options.mirror_then_delete),
            rate=options.mirror_rate,
            stall_seconds=MIRROR_WAIT if wait_seconds is None else wait_seconds,
        )
        return Replicator(
            self.store, lease, ledger, out, replication, storage, reporter.note, reporter.waiting
        )

    def note(self, text: str) -> None:
        """Show a message to the user."""
        self._reporter.note(text)

    def release(self) -> None:
        """Release the lease, if this process holds it."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def moved(self, nbytes: int) -> None:
        """Send a heartbeat after bytes were moved, and raise if a signal asks to stop."""
        self._reporter.heartbeat()
        self._stop.check()
