"""Who works on a mirror: one machine at a time, as long as its heart beats there."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from resumerge.errors import Resumable, refuse
from resumerge.host.machine import boot_id, hostname
from resumerge.host.processes import birth, clock, pid_space
from resumerge.ledger import now
from resumerge.mirror.lease_record import DONE, LeaseRecord, epochs, holder_of, lease_name
from resumerge.mirror.stores.base import Store, StoreError

_log = logging.getLogger(__name__)

BEATS = 4
"""A lease whose heart missed so many beats is dead."""

SECONDS_VARIABLE = "RESUMERGE_LEASE_SECONDS"
LONGEST_SECONDS = 3600.0
"""More is not waited for, whatever a lease says of itself."""

STALE_SECONDS = 3600.0
"""A lease that is older than this, by the clock of its place too, is not watched."""

PATIENCE_SECONDS = 20.0
"""A place that fails is asked again for so long."""

LEAVE_SECONDS = 3.0
"""A place that hangs does not keep the process from ending for longer."""

_NOT_OURS = {errno.EROFS, errno.EACCES, errno.EPERM}
_T = TypeVar("_T")

_live: set[str] = set()
"""Owners of the leases of this process."""


class Lease:
    """The right to write to a mirror. Its heart beats in a thread until `release` or `end`.

    Attributes:
        epoch: higher than that of every lease that was there before.
    """

    def __init__(self, store: Store, holder: LeaseRecord) -> None:
        self.epoch = holder.epoch
        self._store, self._holder = store, holder
        self._heard = clock()
        self._lost = self._over = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._live, name="lease", daemon=True)
        _live.add(holder.owner)
        self._thread.start()

    @classmethod
    def take(
        cls,
        store: Store,
        run: str,
        *,
        take_over: bool = False,
        note: Callable[[str], None] = lambda text: None,
        heartbeat: Callable[[], None] = lambda: None,
    ) -> Lease:
        """Take the lease of a place, from a machine that is dead if need be.

        Clocks are not compared: a lease of another machine is watched for as long as it says.

        Args:
            take_over: whoever holds it is known to be dead.
            note: told what is waited for.
            beat: called often meanwhile.

        Raises:
            InputError: another machine, or process, works there; or the place is read-only.
            Resumable: the place cannot be reached.
        """
        mine = LeaseRecord(
            run=run,
            owner=secrets.token_hex(8),
            host=hostname(),
            boot_id=boot_id(),
            space=pid_space(),
            pid=os.getpid(),
            born=birth(os.getpid()) or 0,
            at=now(),
            seconds=_asked_seconds() or BEATS * store.heartbeat_seconds,
        )
        while True:
            files = retry(store, store.list)
            there = retry(store, lambda: holder_of(store, files))  # noqa: B023, called now
            if there is not None and there.owner == mine.owner:  # claimed, and the answer was lost
                return cls(store, there)
            if there is not None and not take_over:
                _outlive(store, there, note, heartbeat)
            # After what was seen then: who has followed the dead one since, lives.
            mine = mine.claiming(max(epochs(files), default=0) + 1)
            name, data = lease_name(mine.epoch), mine.as_bytes()
            if not retry(store, lambda: store.put_if_absent(name, data)):  # noqa: B023, called now
                take_over = False  # who was quicker is not dead
                continue
            if store.settle_seconds:
                time.sleep(store.settle_seconds)
                there = retry(store, lambda: holder_of(store))
                if there is None or there.owner != mine.owner:
                    take_over = False
                    continue
            _log.info("lease of %s taken, fencing token %d", store.url, mine.epoch)
            return cls(store, mine)

    def check(self) -> None:
        """To be called before everything that is written there, and between its pieces.

        It costs nothing as a rule. Where the heart could not beat for a while (the process was
        stopped, the machine suspended, the place out of reach), the place is asked first.

        Raises:
            Resumable: another machine has taken over.
            OSError: that cannot be told now.
        """
        if not self._lost and clock() - self._heard > self._holder.seconds / 2:
            self._beat()
        if self._lost:
            raise Resumable(
                "mirror_taken_over",
                f"Another machine has taken over the mirror at {self._store.url}, and goes on with "
                "this run there. Nothing more is written to it from here",
            )

    @property
    def is_lost(self) -> bool:
        """Whether another machine is known to have taken over."""
        return self._lost

    def end(self) -> None:
        """No more beats: what is in the mirror of the run's books is about to be removed."""
        self._stop()

    def release(self) -> None:
        """Let others go on at once. A place that fails now is left: they watch it die."""
        if self._over:
            return
        self._stop()
        if not self._lost and not self._thread.is_alive():
            last = threading.Thread(target=self._last_beat, name="lease", daemon=True)
            last.start()
            last.join(LEAVE_SECONDS)

    def _last_beat(self) -> None:
        with suppress(Exception):
            self._beat(released=True)

    def _stop(self) -> None:
        self._over = True
        self._wake.set()
        self._thread.join(LEAVE_SECONDS)
        _live.discard(self._holder.owner)

    def _live(self) -> None:
        """In a thread: a beat every quarter of the lease's time, sooner after one that failed."""
        every = wait = self._holder.seconds / BEATS
        while not self._wake.wait(wait) and not self._lost:
            try:
                self._beat()
                wait = every
            except Exception:  # whatever it is: to stop would be to die without a word
                wait = min(every, max(every / 8, 1.0))

    def _beat(self, *, released: bool = False) -> None:
        """Look whether the lease is still ours, and say that we are here.

        Raises:
            OSError: the place is out of reach, or has lost its books.
        """
        with self._lock:
            if self._lost:
                return
            began = clock()
            files = self._store.list()
            name = lease_name(self.epoch)
            if max(epochs(files), default=0) > self.epoch or (name not in files and DONE in files):
                self._lost = True
                return
            if name not in files:
                raise OSError(f"The books of the run are gone from {self._store.url}")
            there = holder_of(self._store)
            if there is not None and there.known and there.owner != self._holder.owner:
                self._lost = True
                return
            self._holder = self._holder.beating(released=released)
            older = [lease_name(n) for n in epochs(files) if n < self.epoch]
            older = [other for other in older if other in files]
            self._store.put({name: self._holder.as_bytes()}, older)
            self._heard = began


def _outlive(
    store: Store, there: LeaseRecord, note: Callable[[str], None], heartbeat: Callable[[], None]
) -> None:
    """Return when the holder is dead.

    Raises:
        InputError: it is alive.
    """
    if there.released:
        return
    here = (hostname(), boot_id(), pid_space())
    if there.known and (there.host, there.boot_id, there.space) == here and there.boot_id:
        if there.owner in _live or (
            there.pid != os.getpid() and birth(there.pid) in (there.born, 0)
        ):
            raise _is_alive(store, there)
        return
    if _is_stale(store, there):
        note(f"{there} has not been heard of at {store.url} for more than an hour: taking over")
        return
    seconds = _asked_seconds() or min(max(there.seconds, 0.0), LONGEST_SECONDS)
    note(
        f"{there} holds the mirror at {store.url}; looking for {seconds:.0f} s whether it still "
        "works (--take-over does not wait)"
    )
    began = clock()
    while True:
        left = began + seconds - clock()
        time.sleep(min(max(left, 0.01), seconds / 8, 5.0))
        heartbeat()
        found = retry(store, lambda: holder_of(store))
        if found is None or found.raw != there.raw:
            if found is None or found.released:
                return
            raise _is_alive(store, found)
        if left <= 0:
            note(f"{there} is dead: taking over")
            return


def _is_alive(store: Store, there: LeaseRecord) -> Exception:
    return refuse(
        "Another machine is working on this mirror"
        if there.host != hostname()
        else "Another process is working on this mirror",
        where=store.url,
        found=f"{there}, heard of at {there.at}",
        fix="wait for it, or stop it first; if it is known to be dead, add --take-over",
    )


def _is_stale(store: Store, there: LeaseRecord) -> bool:
    """Whether both the place's clock and ours say that it has not been heard of for long."""
    try:
        heard = datetime.fromisoformat(there.at)
        there_now = store.now()
    except (ValueError, OSError):
        return False
    if heard.tzinfo is None or there_now is None:
        return False
    clocks = (there_now, datetime.now(UTC))
    return all((time_now - heard).total_seconds() > STALE_SECONDS for time_now in clocks)


def retry(store: Store, ask: Callable[[], _T]) -> _T:
    """Ask a place something, again and again where it fails for a moment.

    Raises:
        FileNotFoundError: what is asked for is not there.
        InputError: this user may not, or nobody.
        Resumable: it fails for longer.
    """
    began, pause = clock(), 0.1
    while True:
        try:
            return ask()
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _NOT_OURS:
                raise refuse(
                    "The mirror cannot be used",
                    where=store.url,
                    found=error.message if isinstance(error, StoreError) else str(error),
                    fix=(error.fix if isinstance(error, StoreError) else "")
                    or "change its permissions, or name another mirror; to go on with a run "
                    "that is in it, copy the folder to a writable place, and resume that",
                ) from error
            asked = error.retry_after if isinstance(error, StoreError) else 0.0
            if clock() - began + asked > PATIENCE_SECONDS:
                raise Resumable(
                    "mirror", f"The mirror at {store.url} cannot be reached: {error}"
                ) from error
            _log.info("%s is asked again in %.1f s: %s", store.url, max(pause, asked), error)
            time.sleep(max(pause, asked))
            pause = min(2 * pause, 2.0)


def _asked_seconds() -> float | None:
    """What the user wants, in place of what is usual."""
    try:
        seconds = float(os.environ.get(SECONDS_VARIABLE, ""))
    except ValueError:
        return None
    return seconds if 0 < seconds <= LONGEST_SECONDS else None
