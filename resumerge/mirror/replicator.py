"""Replication of a run to its mirror while it merges, in one thread with the ledger as work queue.

The order of operations keeps the mirror consistent at every instant: upload a sealed shard and
compare it, record it in the ledger, write a snapshot that names it, and only then, with
`then_delete`, delete the local shard. The next operation is derived from the ledger and from the
files in the newest snapshot. Each attempt begins by writing a snapshot of its own. It deletes
nothing before that, because the ledger may list files that the mirror has lost. Then it continues
where the previous attempt stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.mirror.companions import Companions
from resumerge.mirror.lease import Lease
from resumerge.mirror.mirror_writer import MirrorWriter
from resumerge.mirror.stores.base import Store, StoreError
from resumerge.mirror.transfer import TransferProgress
from resumerge.retry import Backoff, retry
from resumerge.sizes import show_size
from resumerge.storage import Storage

BACKOFF = Backoff(first=1.0, longest=60.0)
"""The pauses between tries of a failing operation, in seconds."""

CHECK_SECONDS = 0.25
"""The seconds between two checks for signals while the engine waits for the mirror."""

EXIT_SECONDS = 0.5
"""The most seconds that `close` waits for the end of the thread."""


@dataclass(frozen=True)
class ReplicationOptions:
    """The options of a run's replication.

    Args:
        then_delete: whether to delete a local shard after a snapshot in the mirror names it.
        rate: the limit of uploads and downloads together, in bytes per second; None for no limit.
        stall_seconds: the seconds without progress of the mirror after which the run stops.
    """

    then_delete: bool = False
    rate: int | None = None
    stall_seconds: float = 600.0


class Replicator:
    """The replication of one attempt of a run.

    Between `start` and `close`, no other code in this process may write to the store or delete
    sealed shards.

    Args:
        store: the store of the mirror; its temporary failures are reported and retried.
        lease: the lease, which this process holds; it is checked, but not released.
        ledger: the ledger of the run, from which the next operation is derived.
        out: the folder of the sealed shards.
        options: the user's choices for replication.
        storage: deletes files in that folder.
        note: called with messages for the user.
        waiting: called several times a second, during waits, with a text that says why.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        ledger: Ledger,
        out: Path,
        options: ReplicationOptions,
        storage: Storage,
        note: Callable[[str], None],
        waiting: Callable[[str], None],
    ) -> None:
        self.store, self.options = store, options
        self._lease, self._ledger = lease, ledger
        self._note, self._waiting = note, waiting
        self._progress = TransferProgress(options.rate)
        self._writer = MirrorWriter(
            store, lease, ledger, out, storage, note, self._progress, self._moved
        )
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._awake = True
        self._companions: Callable[[], Companions] | None = None
        self._finished = False
        """Whether the mirror has a manifest of this model. The thread ends when it is True."""
        self._error: BaseException | None = None
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    # The engine calls these

    def start(self) -> None:
        """Start the thread. It uploads every shard that is sealed now or later."""
        self._thread.start()

    def sealed(self, shard: int) -> None:
        """Wake the thread after a shard got its final name and was recorded as sealed.

        Raises:
            Resumable: replication has ended, see `check`.
        """
        with self._changed:
            self._wake()
        self.check()

    @property
    def token(self) -> int:
        """The fencing token of this attempt."""
        return self._lease.token

    def uploaded(self, tasks: Collection[str]) -> None:
        """Wake the thread after the ledger recorded shards that tasks of a cluster uploaded.

        Args:
            tasks: the names of the tasks' files. They are removed after the next snapshot.
        """
        self._writer.add_superfluous(tasks)
        with self._changed:
            self._wake()

    def wait_for_snapshot(self, check: Callable[[], None]) -> None:
        """Wait until the mirror has a snapshot of this attempt.

        Args:
            check: called several times a second; may raise to stop waiting.

        Raises:
            Resumable: the mirror has made no progress for too long, or replication has ended.
        """
        started_at = time.monotonic()
        while self._writer.named_in_snapshot is None:
            check()
            self.check()
            self._check_stall(
                time.monotonic() - started_at, "The tasks of the cluster have to wait"
            )
            time.sleep(CHECK_SECONDS / 5)

    def check(self) -> None:
        """Raise the error that ended replication, if any.

        Raises:
            Resumable: another machine has taken over, or a shard is lost here and in the mirror.
        """
        if self._error is not None:
            raise self._error
        if self._lease.is_lost:
            self._lease.check()

    def check_lease(self) -> None:
        """Verify the lease. Threads other than the replicator's call this before they write.

        Raises:
            Resumable: another machine has taken over.
            OSError: the store cannot be reached now.
        """
        self._lease.check()

    def frees(self, waited: float) -> bool:
        """Return whether replication will free disk space by deleting a local shard.

        Args:
            waited: the seconds since the caller began to wait for disk space.

        Raises:
            Resumable: the mirror has made no progress for too long.
        """
        self.check()
        if not self.options.then_delete or not any(
            map(self._writer.is_local, self._ledger.shards.sealed())
        ):
            return False
        self._check_stall(waited, "The disk of this machine is full")
        return True

    def finish(self, companions: Callable[[], Companions], check: Callable[[], None]) -> None:
        """Wait until the mirror has all shards, and complete the model there.

        Args:
            companions: returns the files beside the shards; called again after a failure.
            check: called several times a second; may raise to stop waiting.

        Raises:
            Resumable: the mirror has made no progress for too long, or replication has ended.
        """
        with self._changed:
            self._companions = companions
            self._wake()
        started_at = time.monotonic()
        while self._thread.is_alive():
            check()
            waited_seconds = time.monotonic() - started_at
            self._check_stall(waited_seconds, "All tensors are merged")
            if waited_seconds > 2 * CHECK_SECONDS:
                self._waiting(f"Waiting for the {self.store.place}, which lacks {self._missing()}")
            self._thread.join(CHECK_SECONDS)
        self.check()

    def close(self) -> None:
        """End the thread. The next attempt continues an interrupted upload."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(EXIT_SECONDS)

    def handover_summary(self) -> str:
        """Return a sentence about the shards that another machine would get from the mirror now."""
        mirrored_names = self._writer.named_in_snapshot
        if mirrored_names is None:
            mirrored_names = set(self._ledger.mirrored.checksums())
        shards = self._ledger.shards.all()
        mirrored_shards = [shard for shard in shards if shard["name"] in mirrored_names]
        mirrored_bytes = sum(shard["nbytes"] - shard["header_bytes"] for shard in mirrored_shards)
        local_only_bytes = max(0, self._ledger.totals().nbytes_committed - mirrored_bytes)
        mirror_text = (
            f"The {self.store.place} has {len(mirrored_shards)} of {len(shards)} shards: another "
        )
        mirror_text += f"machine that resumes from it gets {show_size(mirrored_bytes)}"
        local_text = (
            f"; {show_size(local_only_bytes)} more is only on this machine"
            if local_only_bytes
            else ""
        )
        return mirror_text + local_text

    # The thread

    def _work(self) -> None:
        try:
            while not self._finished:
                self._do(self._next())
        except _Closed:
            pass
        except BaseException as error:
            self._error = error

    def _next(self) -> Callable[[], None]:
        """Wait for the next operation, and return it."""
        while True:
            with self._changed:
                self._awake = False
            # This is read before the snapshot's files are compared, so that the snapshot is known
            # to name the shards of these tasks.
            removable_files = self._writer.superfluous
            if self._closed.is_set():
                raise _Closed
            if self._writer.snapshot_names_other_files:
                return self._writer.write_snapshot
            if removable_files:
                return lambda: self._writer.remove(removable_files)
            if self.options.then_delete and self._writer.deletable():
                return self._writer.delete_local
            missing_shards = self._ledger.shards.unmirrored()
            if missing_shards:
                return lambda: self._writer.upload(missing_shards[0])
            if self._companions is not None:
                return self._finish
            self._sleep(None)

    def _do(self, operation: Callable[[], None]) -> None:
        """Perform an operation, and repeat it until it succeeds."""

        def attempt() -> None:
            if self._writer.finish_if_manifest_exists():
                self._finished = True
            else:
                self._lease.check()
                operation()

        self._progress.begin()
        retry(
            attempt,
            BACKOFF,
            is_temporary=lambda error: isinstance(error, OSError) and self._note_failure(error),
            retry_after=lambda error: 0.0,  # `_note_failure` has waited for the store's time
            sleep=self._sleep,
        )
        with self._changed:
            has_recovered, self._failure = self._failure is not None, None
            self._progress.succeeded()
        if has_recovered:
            self._ledger.events.add(EventKind.MIRROR_RECOVERED, mirror=self.store.url)
            self._note(f"The {self.store.place} works again")

    def _finish(self) -> None:
        assert self._companions is not None
        self._finished = self._writer.finish(self._companions)

    def _note_failure(self, error: OSError) -> bool:
        """Report the first of consecutive failures, wait as long as the store asks, return True."""
        if self._closed.is_set():
            raise _Closed from error
        with self._changed:
            is_first, self._failure = self._failure is None, error
        if is_first:
            self._ledger.events.add(
                EventKind.MIRROR_FAILING, mirror=self.store.url, reason=str(error)
            )
            self._note(f"The {self.store.place} fails; retrying: {error}")
        if isinstance(error, StoreError):
            self._closed.wait(error.retry_after)  # unlike `_sleep`, no new shard ends this wait
        return True

    def _sleep(self, seconds: float | None) -> None:
        """Wait until `_wake` is called, or for at most some seconds (None: no limit).

        Raises:
            _Closed: `close` was called.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._awake or self._closed.is_set(), seconds)
            self._awake = False
        if self._closed.is_set():
            raise _Closed

    def _moved(self, nbytes: int) -> None:
        """Wait for the rate limit after a transfer, and verify the lease.

        Raises:
            _Closed: `close` was called.
            Resumable: another machine has taken over.
        """
        pause = self._progress.moved(nbytes)
        if self._closed.wait(pause) if pause > 0 else self._closed.is_set():
            raise _Closed
        self._lease.check()

    # Queries

    def _missing(self) -> str:
        names = self._ledger.shards.unmirrored()
        if not names:
            return "only the files beside the shards" if self._companions else "nothing"
        count = len(self._ledger.shards.all())
        return "its only shard" if count == 1 else f"{len(names)} of {count} shards"

    def _wake(self) -> None:
        """Make the thread choose its next operation. The caller holds the lock."""
        self._awake = True
        self._changed.notify_all()

    def _check_stall(self, waited: float, what: str) -> None:
        """Verify that the mirror has made progress recently.

        Args:
            waited: the seconds since the wait began.
            what: the beginning of the message: the reason for the wait.

        Raises:
            Resumable: the mirror has made no progress for too long during the wait.
        """
        stalled = min(waited, self._progress.stalled_seconds())
        is_denied = isinstance(self._failure, StoreError) and self._failure.denied
        if stalled > (0.0 if is_denied else self.options.stall_seconds):
            why = f": {self._failure}" if self._failure else ""
            raise Resumable(
                Reason.MIRROR,
                f"{what}, but the {self.store.place} made no progress for {stalled:.0f} s{why}. It "
                f"lacks {self._missing()}. Make the {self.store.noun} work again, then resume.",
            )


class _Closed(Exception):
    """An error: `Replicator.close` was called."""
