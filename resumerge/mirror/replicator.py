"""Bringing a run to its mirror while it merges: one thread, whose queue is the ledger.

What it does, in an order that leaves the mirror consistent at every instant: upload a sealed
shard, compare it, note it in the ledger, write a snapshot that names it, and only then, where
that is wanted, free the shard here. What is to be done next follows from the ledger and from what
the newest snapshot names; a thread that begins anew goes on where the one before stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from resumerge.errors import Resumable
from resumerge.ledger import Ledger
from resumerge.mirror.conflicts import ConflictKeeper
from resumerge.mirror.manifest import Companions, complete, say_done
from resumerge.mirror.snapshots import Snapshot, snapshots, write_snapshot
from resumerge.mirror.stores.base import Store, StoreError
from resumerge.mirror.stores.rate_limit import RateLimit
from resumerge.storage import Storage

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries of what failed."""

LOOK_SECONDS = 0.25
"""Time between two looks at signals while the mirror is waited for."""

NOTE_SECONDS = 60.0
"""Time between two notes on what is waited for."""

LEAVE_SECONDS = 0.5
"""Time that the thread gets to end after it was told to."""

MOST_MOVES = 4
"""How often the bytes of a file may be moved, there and back, before moving more of them is no
progress."""


class Held(Protocol):
    """A lease, as far as the mirror is concerned."""

    @property
    def epoch(self) -> int:
        """Higher than that of every machine that held it before."""

    def check(self) -> None:
        """Whether it is still held; may be called often.

        Raises:
            Resumable: another machine has it.
            OSError: that cannot be told now.
        """

    def end(self) -> None:
        """No more beats, since the bookkeeping is about to be removed."""


@dataclass(frozen=True)
class ReplicationOptions:
    """How a run is mirrored.

    Args:
        then_delete: a shard is freed here once the mirror has it.
        rate: bytes in a second, there and back; no limit by default.
        patience: seconds to wait for a mirror that does not get on.
    """

    then_delete: bool = False
    rate: int | None = None
    patience: float = 600.0


class Replicator:
    """The mirror of one attempt.

    Between `start` and `close` nobody else may write to the place, nor remove sealed shards.
    """

    def __init__(
        self,
        store: Store,
        lease: Held,
        ledger: Ledger,
        out: Path,
        manner: ReplicationOptions,
        storage: Storage,
        note: Callable[[str], None],
    ) -> None:
        """
        Args:
            out: the folder of the sealed shards.
            storage: of that folder.
            note: told what a person should know.
        """
        self.store, self.manner = store, manner
        self._lease, self._ledger, self._out = lease, ledger, out
        self._storage, self._note = storage, note
        self._pace = RateLimit(manner.rate)
        self._keeper = ConflictKeeper(store, self._kept, self._moved)
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._awake = True
        self._behind = True
        """Whether the newest snapshot lacks something; a new machine's lacks its epoch."""
        self._older: list[Snapshot] | None = None
        """Snapshots that are there; None where that has to be looked up."""
        self._named: set[str] = set()
        """Files that the newest snapshot names."""
        self._companions: Callable[[], Companions] | None = None
        self._finished = False
        self._error: BaseException | None = None
        self._failure: OSError | None = None
        self._got_on = time.monotonic()
        self._job_moved = self._job_bytes = 0
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    # What the engine calls

    def start(self) -> None:
        """Begin to bring what is sealed, and go on with what is sealed later."""
        self._thread.start()

    def sealed(self, shard: int) -> None:
        """A shard has its final name, and the ledger says so.

        Raises:
            Resumable: nothing more can be brought there; another machine has taken over.
        """
        with self._changed:
            self._wake()
        self.check()

    def check(self) -> None:
        """Raise what made going on impossible, if anything did.

        Raises:
            Resumable: another machine has taken over, or a shard is lost here and there.
        """
        if self._error is not None:
            raise self._error

    def frees(self, waited: float) -> bool:
        """Whether a shard that is here will be freed, so that waiting for room makes sense.

        Args:
            waited: for how many seconds it was.

        Raises:
            Resumable: the mirror did not get on for as long as the patience lasts.
        """
        self.check()
        sealed = self._ledger.sealed_shards()
        if not self.manner.then_delete or not any(map(self._is_here, sealed)):
            return False
        self._lose_patience(waited, "There is no room to go on here")
        return True

    def finish(self, companions: Callable[[], Companions], look: Callable[[], None]) -> None:
        """Wait until everything is there, and complete the model.

        Args:
            companions: the files beside the shards, made anew on each call.
            look: called a few times a second meanwhile; may raise to stop waiting.

        Raises:
            Resumable: the mirror does not get on, or not any more.
        """
        with self._changed:
            self._companions = companions
            self._wake()
        began, told = time.monotonic(), float("-inf")
        while not self._finished:
            self.check()
            look()
            waited = time.monotonic() - began
            self._lose_patience(waited, "Everything is merged")
            if waited - told > NOTE_SECONDS and waited > 2 * LOOK_SECONDS:
                told = waited
                self._note(f"Waiting for the mirror at {self.store.url}: {self._lacking()}")
            with self._changed:
                self._changed.wait_for(lambda: self._finished or self._error, LOOK_SECONDS)

    def close(self) -> None:
        """End the thread; an upload is cut off, and the next attempt goes on with it."""
        self._over.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(LEAVE_SECONDS)

    # The thread

    def _work(self) -> None:
        try:
            while True:
                self._insist(self._next())
        except _Over:
            pass
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next(self) -> Callable[[], None]:
        """What is to be done next; waits for it."""
        while True:
            with self._changed:
                self._awake = False
            if self._over.is_set():
                raise _Over
            if self._behind:
                return self._write_snapshot
            if self.manner.then_delete and self._to_free():
                return self._free
            lacking = self._ledger.unmirrored_shards()
            if lacking:
                return lambda: self._bring(lacking[0])
            if self._companions is not None and not self._finished:
                return self._finish
            with self._changed:
                self._changed.wait_for(lambda: self._awake or self._over.is_set())

    def _insist(self, job: Callable[[], None]) -> None:
        """Do something, again and again until it is done."""
        pause, self._job_moved, self._job_bytes = FIRST_PAUSE, 0, 0
        while True:
            try:
                self._lease.check()
                job()
            except OSError as error:
                self._failed(error)
                if isinstance(error, StoreError):
                    self._over.wait(error.retry_after)  # not a moment sooner, whatever is sealed
            else:
                self._succeeded()
                return
            with self._changed:
                self._changed.wait_for(lambda: self._awake or self._over.is_set(), pause)
                self._awake = False
            if self._over.is_set():
                raise _Over
            pause = min(2 * pause, LONGEST_PAUSE)

    def _failed(self, error: OSError) -> None:
        if self._over.is_set():
            raise _Over from error
        with self._changed:
            first, self._failure = self._failure is None, error
        if first:
            self._ledger.event("mirror_failing", mirror=self.store.url, reason=str(error))
            self._note(f"The mirror at {self.store.url} fails, and is tried again: {error}")

    def _succeeded(self) -> None:
        with self._changed:
            failed, self._failure = self._failure is not None, None
            self._got_on = time.monotonic()
            self._changed.notify_all()
        if failed:
            self._ledger.event("mirror_recovered", mirror=self.store.url)
            self._note(f"The mirror at {self.store.url} works again")

    def _moved(self, nbytes: int) -> None:
        """Bytes went there or came back: hold the pace, and see whether to go on."""
        pause = self._pace.seconds(nbytes)
        with self._changed:
            self._job_moved += nbytes
            if nbytes and self._job_moved <= MOST_MOVES * self._job_bytes:
                self._got_on = time.monotonic() + pause
        if self._over.wait(pause) if pause > 0 else self._over.is_set():
            raise _Over
        self._lease.check()

    # What it does, one at a time

    def _write_snapshot(self) -> None:
        """Write a snapshot that names what is there; what is there no more is forgotten."""
        older, self._older = self._older, None
        if older is None:
            there = self.store.list()
            self._forget_lost(there)
            older = snapshots(there)
        named = self._ledger.mirrored()
        self._older = [write_snapshot(self.store, self._ledger, self._lease.epoch, older)]
        self._behind = self._forget_lost(self.store.list())
        self._named = set() if self._behind else set(named)

    def _forget_lost(self, there: Mapping[str, int]) -> bool:
        """Forget files that somebody removed from the mirror; whether there were any."""
        known = self._ledger.mirrored_files()
        lost = [name for name, (nbytes, _) in known.items() if there.get(name) != nbytes]
        for name in lost:
            self._ledger.forget_mirrored(name)
            self._ledger.event("mirror_lost_file", mirror=self.store.url, name=name)
        return bool(lost)

    def _bring(self, name: str) -> None:
        """Upload a shard, and note it."""
        path = self._out / name
        if not path.is_file():
            raise Resumable(
                "shard_lost",
                f"{name} is neither in {self._out} nor in the mirror at {self.store.url} any more; "
                "resuming computes it again",
            )
        nbytes = path.stat().st_size
        self._job_bytes = nbytes
        self._keeper.make_way(name, path, self.store.list().get(name))
        sha256 = self.store.upload(name, path, self._moved)
        self._moved(0)
        self._ledger.note_mirrored(name, nbytes, sha256)
        self._behind = True

    def _free(self) -> None:
        """Remove shards here that the newest snapshot there names."""
        for name in self._to_free():
            self._storage.remove(self._out / name)

    def _finish(self) -> None:
        if self._forget_lost(self.store.list()):
            self._behind = True
            return
        files = self._ledger.mirrored_files()
        for name, nbytes, sha256 in self._complete():
            files[name] = (nbytes, sha256)
        self._lease.check()
        self._lease.end()
        say_done(self.store, self._ledger, self._lease.epoch, files)
        self._finished = True

    def _complete(self) -> Iterator[tuple[str, int, str]]:
        assert self._companions is not None
        return complete(self.store, self._companions(), self._keeper, self._moved)

    def _kept(self, name: str, now: str) -> None:
        """A file in the mirror is not ours."""
        if name == now:
            self._ledger.event("file_kept", name=name, mirror=self.store.url)
            self._note(
                f"{name} in the mirror at {self.store.url} is not ours, and is left as it is"
            )
        else:
            self._ledger.event("file_set_aside", name=name, now=now, mirror=self.store.url)
            self._note(
                f"{name} in the mirror at {self.store.url} was not written by this run: it is now "
                f"{now}"
            )

    # What is where

    def _to_free(self) -> list[str]:
        sealed = self._ledger.sealed_shards()
        return [name for name in sealed if name in self._named and self._is_here(name)]

    def _is_here(self, name: str) -> bool:
        return (self._out / name).is_file()

    # Waiting

    def _wake(self) -> None:
        """Let the thread look for something to do; it holds the lock who calls."""
        self._awake = True
        self._changed.notify_all()

    def _lose_patience(self, waited: float, what: str) -> None:
        """Raise `Resumable` where the mirror stands still for too long while it is waited for."""
        still = min(waited, time.monotonic() - self._got_on)
        denied = isinstance(self._failure, StoreError) and self._failure.denied
        if still > (0.0 if denied else self.manner.patience):
            why = f": {self._failure}" if self._failure else ""
            raise Resumable(
                "mirror",
                f"{what}, and the mirror at {self.store.url} did not get on for {still:.0f} s{why}."
                f" It lacks {self._lacking()}. Mend that, then resume.",
            )

    def _lacking(self) -> str:
        names = self._ledger.unmirrored_shards()
        if not names:
            return "only the files beside the shards" if self._companions else "nothing"
        return f"{len(names)} of {len(self._ledger.shards())} shards"


class _Over(Exception):
    """The attempt ends."""
