"""The lease of a mirror: one machine at a time may write, as long as it renews its lease.

The name of each lease contains a fencing token. The lease with the highest token is the valid one.
A machine that sees a higher token than its own has lost the mirror, and stops writing.
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
"""The number of missed heartbeats after which a lease is dead."""

SECONDS_VARIABLE = "RESUMERGE_LEASE_SECONDS"
"""The environment variable that overrides the lifetime of a lease, in seconds."""

CLOCK_ERROR_TO_TAKE = 3600.0
"""The assumed error of the clock of another machine, in seconds.

A lease that is older than its lifetime plus this time, by this machine's clock and by the store's,
is taken over without being watched first.
"""

TRIES = 3
"""The most tries to write a lease if the store reports that its file exists, but does not list it.

If another machine wrote a lease first, the store lists that lease.
"""

EXIT_SECONDS = 3.0
"""The most seconds by which an unresponsive store delays the end of the process."""

_owners: set[str] = set()
"""The owners of the leases that this process holds."""


def lease_seconds(store: Store) -> float:
    """Return the seconds after which a new lease in a store expires without a renewal.

    The default is the time of `MISSED_HEARTBEATS` heartbeats. The environment variable
    `SECONDS_VARIABLE` overrides it.
    """
    return _configured_seconds() or MISSED_HEARTBEATS * store.heartbeat_seconds


class Lease:
    """The right to write to a mirror. A thread renews it until `release` or `stop` is called.

    Args:
        store: the store of the mirror, to which every renewal writes the lease's file again.
        record: the record that was written to the mirror.

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
        """Acquire the lease, if necessary by taking it over from a dead machine.

        The lease of another machine is watched for the lifetime in its record, or for the time that
        this machine's environment sets. If the lease does not change in that time, it is dead. This
        does not compare the clocks of two machines.

        Args:
            store: the store of the mirror. A place that does not exist yet is made by the first
                write.
            run: the id of the run, for the record; the run of an earlier lease may be another.
            take_over: whether the user asserts that the present owner is dead (``--take-over``). In
                a store that cannot hold a lease, this also holds for later commands of this
                machine, until it reboots or another machine writes a lease.
            note: called with messages for the user, on waiting and on taking over.
            heartbeat: called often while waiting.

        Raises:
            InputError: another machine or process holds the lease; or the store is read-only; or
                the store cannot hold a lease, and `take_over` is not set.
            Resumable: the store cannot be reached.
        """
        if obstacle := retry_store(store, store.lease_obstacle):
            # An earlier --take-over still holds if no other machine has used the mirror since.
            latest_lease = retry_store(store, lambda: read_lease(store))
            if not take_over and (latest_lease is None or not _is_of_this_boot(latest_lease)):
                raise _no_lease(store, obstacle)
            note(
                f"Warning: {store.url} cannot hold a lease: {obstacle}. As --take-over says, no "
                f"other machine works on this {store.noun}. If one does, both may damage it"
            )
        own_record = LeaseRecord(
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
            current = retry_store(store, lambda: read_lease(store, files))  # noqa: B023, called now
            # If this process is the owner, an earlier write succeeded, but its response was lost.
            if current is not None and current.owner == own_record.owner:
                return cls(store, current)
            if current is not None and not take_over:
                _wait_until_free(store, current, note, heartbeat)
            # The token is computed from the files listed above. If another machine has acquired
            # the lease since then, that machine is alive, and this write fails.
            token = min(max(_tokens(store, files), default=0) + 1, LARGEST_TOKEN)
            own_record = own_record.with_token(token)
            name, data = lease_name(token), own_record.as_bytes()
            if name in files:
                break
            is_written = retry_store(store, lambda: store.put_if_absent(name, data))  # noqa: B023
            if is_written and store.settle_seconds:
                time.sleep(store.settle_seconds)
                current = retry_store(store, lambda: read_lease(store))
                is_written = current is not None and current.owner == own_record.owner
            if is_written:
                _log.info("lease of %s acquired, fencing token %d", store.url, own_record.token)
                return cls(store, own_record)
            take_over = False  # the machine that acquired the lease meanwhile is alive
        raise refuse(
            f"The lease of the {store.noun} cannot be acquired",
            where=store.url,
            expected=f"a place in which {name} can be created",
            found="a file of this name that is not a lease",
            fix=f"remove it, if no other machine works on this {store.noun}",
        )

    def check(self) -> None:
        """Verify the lease. Call this before every write and between the pieces of an upload.

        Usually this makes no request. If no renewal has succeeded for half of the lifetime (the
        process was stopped, the machine suspended, the store unreachable), the lease is renewed
        first.

        Raises:
            Resumable: another machine has taken over.
            OSError: the store cannot be reached now.
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
        """Verify the lease by a listing of the mirror that the caller already has.

        Args:
            files: the names of all files in the mirror.

        Raises:
            Resumable: another machine has taken over.
            OSError: the store cannot be reached now.
        """
        if max(fencing_tokens(files), default=0) > self.token:
            self._lost = True
        self.check()

    @property
    def is_lost(self) -> bool:
        """Whether this process has noticed that another machine has taken over."""
        return self._lost

    def stop(self) -> None:
        """Stop the renewals, because the metadata is about to be removed from the mirror."""
        self._stopped = True
        self._wake.set()
        self._thread.join(EXIT_SECONDS)
        _owners.discard(self._record.owner)

    def release(self) -> None:
        """Release the lease, so that other machines can continue without waiting for its expiry.

        If the store fails, the lease expires after its lifetime.
        """
        if self._stopped:
            return
        self.stop()
        if not self._lost and not self._thread.is_alive():
            final_renewal = threading.Thread(target=self._renew_released, name="lease", daemon=True)
            final_renewal.start()
            final_renewal.join(EXIT_SECONDS)

    def _renew_released(self) -> None:
        with suppress(Exception):
            self._renew(released=True)

    def _keep(self) -> None:
        """Renew the lease at regular intervals, and sooner after a failed renewal."""
        interval_seconds = wait_seconds = self._record.seconds / MISSED_HEARTBEATS
        while not self._wake.wait(wait_seconds) and not self._lost:
            try:
                self._renew()
                wait_seconds = interval_seconds
            except Exception:  # any error: if the thread ended, the lease would expire unnoticed
                wait_seconds = retry_seconds(interval_seconds)

    def _renew(self, *, released: bool = False) -> None:
        """Verify that this process still holds the lease, and write the lease's record again.

        Raises:
            OSError: the store cannot be reached, or the metadata is missing.
        """
        with self._lock:
            if self._lost:
                return
            started_at = clock()
            files = self._store.list()
            name = lease_name(self.token)
            is_finished = name not in files and MANIFEST_FILE in files
            if max(fencing_tokens(files), default=0) > self.token or is_finished:
                self._lost = True
                return
            if name not in files:
                raise OSError(f"The metadata of the run is missing from {self._store.url}")
            current_lease = read_lease(self._store, {name: files[name]})
            if current_lease is None:
                raise OSError(f"The lease of {self._store.url} was removed while it was read")
            if current_lease.readable and current_lease.owner != self._record.owner:
                self._lost = True
                return
            self._record = self._record.renewed(released=released)
            superseded_leases = [
                older_name for token, older_name in leases(files).items() if token < self.token
            ]
            record_bytes = self._record.as_bytes()
            if not self._store.put_if_unchanged(
                name, record_bytes, current_lease.raw, superseded_leases
            ):
                raise OSError(f"The lease of {self._store.url} was changed while it was renewed")
            self._renewed_at = started_at


def _tokens(store: Store, files: Collection[str]) -> list[int]:
    """Return the fencing tokens in a mirror; of a finished mirror, also the token in its manifest.

    A new lease needs a higher token than that of a finished run, because delayed writes of the
    earlier machine may still arrive.
    """
    manifest = None
    if MANIFEST_FILE in files:
        manifest = retry_store(store, lambda: read_manifest(store))
    return [*fencing_tokens(files), manifest.token if manifest is not None else 0]


def retry_seconds(interval: float) -> float:
    """Return the seconds to wait after a failed renewal.

    Args:
        interval: the seconds between renewals.
    """
    return min(interval, max(interval / 8, 1.0))


def _wait_until_free(
    store: Store, lease: LeaseRecord, note: Callable[[str], None], heartbeat: Callable[[], None]
) -> None:
    """Wait until a lease may be taken over: released, stale, or not renewed for its lifetime.

    Raises:
        InputError: the owner is alive.
    """
    if lease.released:
        return
    if _is_of_this_boot(lease):
        is_own_process = lease.pid == os.getpid()
        if lease.owner in _owners or (not is_own_process and birth(lease.pid) in (lease.born, 0)):
            raise _held_by(store, lease)
        return
    if _is_stale(store, lease):
        note(
            f"{lease} has not renewed its lease of {store.url} for more than "
            f"{show_seconds(CLOCK_ERROR_TO_TAKE)}: taking over"
        )
        return
    seconds = _configured_seconds() or lease.lifetime
    note(
        f"{lease} holds the lease of the {store.place}. Checking for {seconds:.0f} s "
        "whether it is alive (--take-over skips this)"
    )
    started_at = clock()
    while True:
        remaining = started_at + seconds - clock()
        time.sleep(min(max(remaining, 0.01), seconds / 8, 5.0))
        heartbeat()
        latest_lease = retry_store(store, lambda: read_lease(store))
        if latest_lease is None or latest_lease.released:
            return
        if latest_lease.raw != lease.raw:
            raise _held_by(store, latest_lease)
        if remaining <= 0:
            note(f"{lease} is dead: taking over")
            return


def _is_of_this_boot(lease: LeaseRecord) -> bool:
    """Return whether a lease was written by a process of this machine after its last boot."""
    this_boot = (hostname(), boot_id(), pid_space())
    return (
        lease.readable
        and bool(lease.boot_id)
        and (lease.host, lease.boot_id, lease.space) == this_boot
    )


def _held_by(store: Store, lease: LeaseRecord) -> InputError:
    holder_kind = "process" if lease.host == hostname() else "machine"
    return refuse(
        f"Another {holder_kind} is working on this {store.noun}",
        where=store.url,
        found=f"{lease}, last heard from at {lease.at}",
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


def _is_stale(store: Store, lease: LeaseRecord) -> bool:
    """Return whether a lease is dead by this machine's clock and by the store's clock."""
    try:
        store_now = store.now()
    except OSError:
        return False
    if store_now is None:
        return False
    ages = [lease.age(clock_time) for clock_time in (store_now, datetime.now(UTC))]
    return all(age is not None and lease.is_dead(age, CLOCK_ERROR_TO_TAKE) for age in ages)


def _configured_seconds() -> float | None:
    """Return the lifetime of a lease in seconds from the environment; None if unset or invalid."""
    try:
        seconds = float(os.environ.get(SECONDS_VARIABLE, ""))
    except ValueError:
        return None
    return seconds if 0 < seconds <= LONGEST_SECONDS else None
