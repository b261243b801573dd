"""The lease of a mirror: one machine at a time may write, as long as it renews its lease.

Each lease has a fencing token in its name, and the highest token counts. A machine whose token is
no longer the highest has lost the mirror and writes nothing more.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime

from resumerge.errors import InputError, Reason, Resumable, refuse
from resumerge.host.machine import boot_id, hostname
from resumerge.host.processes import birth, clock, pid_space
from resumerge.mirror.lease_record import LONGEST_SECONDS, LeaseRecord, read_lease
from resumerge.mirror.manifest import read_manifest
from resumerge.mirror.names import LARGEST_TOKEN, MANIFEST_FILE, fencing_tokens, lease_name, leases
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.base import Store
from resumerge.sizes import show_seconds

_log = logging.getLogger(__name__)

MISSED_HEARTBEATS = 4
"""The number of missing heartbeats after which a lease is dead."""

SECONDS_VARIABLE = "RESUMERGE_LEASE_SECONDS"
CLOCK_ERROR_TO_TAKE = 3600.0
"""The seconds that the clock of another machine may be wrong.

A lease that is older than its lifetime and this time, by our clock and the store's, is taken
without being watched.
"""

TRIES = 3
"""The number of times that a lease is written that the store says is there, but does not list.

A lease that another machine was faster to write is listed.
"""

EXIT_SECONDS = 3.0
"""The longest time by which a store that does not respond delays the end of the process."""

_owners: set[str] = set()
"""The owners of the leases that this process holds."""


def lease_seconds(store: Store) -> float:
    """Return how long a new lease in a store lives without a renewal, in seconds.

    It is the time of the heartbeats that may be missing, unless the environment sets another.
    """
    return _configured_seconds() or MISSED_HEARTBEATS * store.heartbeat_seconds


class Lease:
    """The right to write to a mirror. A thread renews it until `release` or `stop`.

    Args:
        store: the mirror.
        record: the record that was written to it.

    Attributes:
        token: the fencing token, higher than that of every earlier lease.
    """

    def __init__(self, store: Store, record: LeaseRecord) -> None:
        self.token = record.token
        self._store, self._record = store, record
        self._renewed_at = clock()
        self._lost = self._stopped = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        _owners.add(record.owner)
        self._thread.start()

    @classmethod
    def acquire(
        cls,
        store: Store,
        run: str,
        *,
        take_over: bool = False,
        note: Callable[[str], None] = lambda text: None,
        heartbeat: Callable[[], None] = lambda: None,
    ) -> Lease:
        """Acquire the lease, from a dead machine if necessary.

        The clocks of two machines are not compared: the lease of another machine is watched for the
        time that it names, or for what this machine's environment says, and is dead if it does not
        change.

        Args:
            store: the mirror.
            run: the id of the run.
            take_over: whether the user says that the present owner is dead. In a store that cannot
                hold a lease, a later command of this machine need not say it again.
            note: gets messages about what is being waited for.
            heartbeat: called often while waiting.

        Raises:
            InputError: another machine or process holds the lease, or the store is read-only, or
                cannot hold a lease and `take_over` is not set.
            Resumable: the store cannot be reached.
        """
        if obstacle := retry_store(store, store.lease_obstacle):
            # What --take-over said holds as long as no other machine has worked there since.
            latest = retry_store(store, lambda: read_lease(store))
            if not take_over and (latest is None or not _is_of_this_boot(latest)):
                raise _no_lease(store, obstacle)
            note(
                f"Warning: {store.url} cannot hold a lease: {obstacle}. As --take-over says, no "
                f"other machine works on this {store.noun}. If one does, both may damage it"
            )
        mine = LeaseRecord(
            run=run,
            owner=secrets.token_hex(8),
            host=hostname(),
            boot_id=boot_id(),
            space=pid_space(),
            pid=os.getpid(),
            born=birth(os.getpid()) or 0,
            seconds=lease_seconds(store),
        )
        for _ in range(TRIES):
            files = retry_store(store, store.list)
            found = retry_store(store, lambda: read_lease(store, files))  # noqa: B023, called now
            if found is not None and found.owner == mine.owner:  # written, and the answer was lost
                return cls(store, found)
            if found is not None and not take_over:
                _wait_until_free(store, found, note, heartbeat)
            # The token follows from the files listed above: a machine that has acquired the lease
            # since then is alive, and this write fails.
            token = min(max(_tokens(store, files), default=0) + 1, LARGEST_TOKEN)
            mine = mine.with_token(token)
            name, data = lease_name(token), mine.as_bytes()
            if name in files:
                break
            written = retry_store(store, lambda: store.put_if_absent(name, data))  # noqa: B023
            if written and store.settle_seconds:
                time.sleep(store.settle_seconds)
                found = retry_store(store, lambda: read_lease(store))
                written = found is not None and found.owner == mine.owner
            if written:
                _log.info("lease of %s acquired, fencing token %d", store.url, mine.token)
                return cls(store, mine)
            take_over = False  # a machine that was faster is alive
        raise refuse(
            f"The lease of the {store.noun} cannot be acquired",
            where=store.url,
            expected=f"a place in which {name} can be created",
            found="a file of this name that is not a lease",
            fix=f"remove it, if no other machine works on this {store.noun}",
        )

    def check(self) -> None:
        """Verify the lease; to be called before every write and between the pieces of an upload.

        Usually this costs nothing. If no renewal succeeded for a while (the process was stopped,
        the machine suspended, the store unreachable), it asks the store.

        Raises:
            Resumable: another machine has taken over.
            OSError: the store cannot say now.
        """
        if not self._lost and clock() - self._renewed_at > self._record.seconds / 2:
            self._renew()
        if self._lost:
            raise Resumable(
                Reason.MIRROR_TAKEN_OVER,
                f"Another machine has taken over the {self._store.place} and continues "
                "this run there. This machine has stopped writing to it",
            )

    def check_listed(self, files: Collection[str]) -> None:
        """Verify the lease by a listing of the mirror that was made anyway.

        Args:
            files: the names of all files in the mirror.

        Raises:
            Resumable: another machine has taken over.
            OSError: the store cannot say now.
        """
        if max(fencing_tokens(files), default=0) > self.token:
            self._lost = True
        self.check()

    @property
    def is_lost(self) -> bool:
        """Whether another machine is known to have taken over."""
        return self._lost

    def stop(self) -> None:
        """Stop the renewals, because the metadata is about to be removed from the mirror."""
        self._stopped = True
        self._wake.set()
        self._thread.join(EXIT_SECONDS)
        _owners.discard(self._record.owner)

    def release(self) -> None:
        """Allow other machines to continue at once. If the store fails, the lease just expires."""
        if self._stopped:
            return
        self.stop()
        if not self._lost and not self._thread.is_alive():
            last = threading.Thread(target=self._renew_released, name="lease", daemon=True)
            last.start()
            last.join(EXIT_SECONDS)

    def _renew_released(self) -> None:
        with suppress(Exception):
            self._renew(released=True)

    def _keep(self) -> None:
        """Renew the lease, in a thread; sooner after a renewal that failed."""
        interval = wait = self._record.seconds / MISSED_HEARTBEATS
        while not self._wake.wait(wait) and not self._lost:
            try:
                self._renew()
                wait = interval
            except Exception:  # any error: a thread that ends would let the lease expire unnoticed
                wait = retry_seconds(interval)

    def _renew(self, *, released: bool = False) -> None:
        """Verify that the lease is still ours, and write it again.

        Raises:
            OSError: the store cannot be reached, or the metadata is missing.
        """
        with self._lock:
            if self._lost:
                return
            began = clock()
            files = self._store.list()
            name = lease_name(self.token)
            finished = name not in files and MANIFEST_FILE in files
            if max(fencing_tokens(files), default=0) > self.token or finished:
                self._lost = True
                return
            if name not in files:
                raise OSError(f"The metadata of the run is missing from {self._store.url}")
            found = read_lease(self._store, {name: files[name]})
            if found is None:
                raise OSError(f"The lease of {self._store.url} was removed while it was read")
            if found.readable and found.owner != self._record.owner:
                self._lost = True
                return
            self._record = self._record.renewed(released=released)
            older = [other for token, other in leases(files).items() if token < self.token]
            data = self._record.as_bytes()
            if not self._store.put_if_unchanged(name, data, found.raw, older):
                raise OSError(f"The lease of {self._store.url} was changed while it was renewed")
            self._renewed_at = began


def _tokens(store: Store, files: Collection[str]) -> list[int]:
    """Return the fencing tokens of a mirror, also that of a finished one, whose leases are gone.

    Writes that a machine sent long before may still arrive.
    """
    manifest = None
    if MANIFEST_FILE in files:
        manifest = retry_store(store, lambda: read_manifest(store))
    return [*fencing_tokens(files), manifest.token if manifest is not None else 0]


def retry_seconds(interval: float) -> float:
    """Return the seconds until a renewal that failed is tried again.

    Args:
        interval: the seconds between renewals.
    """
    return min(interval, max(interval / 8, 1.0))


def _wait_until_free(
    store: Store, found: LeaseRecord, note: Callable[[str], None], heartbeat: Callable[[], None]
) -> None:
    """Return when a lease may be taken: it is released, stale, or not renewed for its lifetime.

    Raises:
        InputError: the owner is alive.
    """
    if found.released:
        return
    if _is_of_this_boot(found):
        own = found.pid == os.getpid()
        if found.owner in _owners or (not own and birth(found.pid) in (found.born, 0)):
            raise _held_by(store, found)
        return
    if _is_stale(store, found):
        note(
            f"{found} has not renewed its lease of {store.url} for more than "
            f"{show_seconds(CLOCK_ERROR_TO_TAKE)}: taking over"
        )
        return
    seconds = _configured_seconds() or found.lifetime
    note(
        f"{found} holds the lease of the {store.place}. Checking for {seconds:.0f} s "
        "whether it is alive (--take-over skips this)"
    )
    began = clock()
    while True:
        left = began + seconds - clock()
        time.sleep(min(max(left, 0.01), seconds / 8, 5.0))
        heartbeat()
        latest = retry_store(store, lambda: read_lease(store))
        if latest is None or latest.released:
            return
        if latest.raw != found.raw:
            raise _held_by(store, latest)
        if left <= 0:
            note(f"{found} is dead: taking over")
            return


def _is_of_this_boot(found: LeaseRecord) -> bool:
    """Return whether the owner of a lease is a process of this machine since its last boot."""
    here = (hostname(), boot_id(), pid_space())
    return (
        found.readable and bool(found.boot_id) and (found.host, found.boot_id, found.space) == here
    )


def _held_by(store: Store, found: LeaseRecord) -> InputError:
    other = "process" if found.host == hostname() else "machine"
    return refuse(
        f"Another {other} is working on this {store.noun}",
        where=store.url,
        found=f"{found}, last heard from at {found.at}",
        fix="wait until it has finished, or stop it; if you know that it is dead, add --take-over",
    )


def _no_lease(store: Store, obstacle: str) -> InputError:
    return refuse(
        f"This store cannot keep two machines from working on one {store.noun}",
        where=store.url,
        expected="a store with conditional writes",
        found=obstacle,
        fix=f"name another {store.noun}; if you know that no other machine will work on this one, "
        "add --take-over",
    )


def _is_stale(store: Store, found: LeaseRecord) -> bool:
    """Return whether our clock and the store's both say that a lease is dead."""
    try:
        store_now = store.now()
    except OSError:
        return False
    if store_now is None:
        return False
    ages = [found.age(now) for now in (store_now, datetime.now(UTC))]
    return all(age is not None and found.is_dead(age, CLOCK_ERROR_TO_TAKE) for age in ages)


def _configured_seconds() -> float | None:
    """Return the duration of a lease that the environment sets, if any."""
    try:
        seconds = float(os.environ.get(SECONDS_VARIABLE, ""))
    except ValueError:
        return None
    return seconds if 0 < seconds <= LONGEST_SECONDS else None
