"""Promise: a lease that is another's, or may be, is never written over; one's own is kept."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from made_up_leases import ELSEWHERE, HERE, SECONDS, seconds_to_acquire, write
from plain_folder import PlainFolder, Weak
from virtual_machines import Threading
from virtual_time import VirtualTime
from waiting import wait_until

from resumerge.errors import InputError, Resumable
from resumerge.host.processes import birth
from resumerge.mirror import Lease
from resumerge.mirror.lease import retry_seconds
from resumerge.mirror.lease_record import LeaseRecord, read_lease
from resumerge.mirror.names import LARGEST_TOKEN, MANIFEST_FILE, lease_name
from resumerge.mirror.stores.folder import FolderStore


def found(store: PlainFolder, token: int = 1) -> LeaseRecord:
    record = read_lease(store)
    assert record is not None and record.token == token
    return record


# Renewals


def test_a_renewal_finds_another_owner_under_the_same_token(
    store: PlainFolder, leases: list[Lease]
) -> None:
    """A store may let two machines write one lease at once: the later writer owns it."""
    leases.append(Lease.acquire(store, "run"))
    write(store, ELSEWHERE)
    wait_until(lambda: leases[0].is_lost)
    with pytest.raises(Resumable, match="Another machine has taken over"):
        leases[0].check()
    assert (store.folder / lease_name(1)).read_bytes() == ELSEWHERE.as_bytes()


def test_a_renewal_finds_a_snapshot_of_a_later_machine(
    store: PlainFolder, leases: list[Lease]
) -> None:
    """The later machine's lease may have been removed, or may not be listed yet."""
    leases.append(Lease.acquire(store, "run"))
    earlier, later = (f".resumerge/ledger-00000{token}-000001-{'0' * 32}.db" for token in (1, 2))
    store.put({earlier: b""})
    renewed = found(store).heartbeat
    wait_until(lambda: found(store).heartbeat > renewed + 1)
    assert not leases[0].is_lost
    store.put({later: b""})
    wait_until(lambda: leases[0].is_lost)


def test_what_is_half_written_under_our_token_is_ours(
    store: PlainFolder, leases: list[Lease]
) -> None:
    leases.append(Lease.acquire(store, "run"))
    owner = found(store).owner
    store.put({lease_name(1): b'{"run"'})
    wait_until(lambda: found(store).readable)
    leases[0].check()
    assert found(store).owner == owner


def test_a_renewal_counts_from_before_it_was_written(
    store: PlainFolder, leases: list[Lease]
) -> None:
    """The store may write a renewal so slowly that another machine takes over meanwhile."""
    leases.append(Lease.acquire(store, "run"))
    written: list[float] = []

    def slow(operation: str) -> None:
        if operation == "put" and not written:
            time.sleep(0.75 * SECONDS)
            written.append(time.monotonic())
            write(store, ELSEWHERE, 2)

    store.fails = slow
    wait_until(lambda: written)  # the next renewal is not due yet
    with pytest.raises(Resumable, match="Another machine has taken over"):
        leases[0].check()


def test_each_renewal_is_seen_and_removes_older_leases_alone(
    store: PlainFolder, leases: list[Lease]
) -> None:
    snapshot = f".resumerge/ledger-000002-000001-{'0' * 32}.db"
    for token in (1, 2):
        write(store, replace(ELSEWHERE, released=True), token)
    store.put({snapshot: b""})
    leases.append(Lease.acquire(store, "run"))
    first = found(store, 3)
    wait_until(lambda: found(store, 3).heartbeat >= first.heartbeat + 2)
    assert set(store.list()) == {lease_name(3), snapshot}
    assert found(store, 3).at > first.at
    assert not found(store, 3).released
    assert not leases[0].is_lost


def test_a_renewal_replaces_what_it_has_read_and_nothing_else(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unconditional renewal would replace what another machine wrote in between."""
    leases.append(Lease.acquire(store, "run"))
    before = found(store).raw
    asked: list[tuple[object, ...]] = []

    def refuses(*given: object) -> bool:
        asked.append(given)
        return False

    monkeypatch.setattr(store, "put_if_unchanged", refuses)
    time.sleep(0.75 * SECONDS)
    with pytest.raises(OSError, match="was changed while it was renewed"):
        leases[0].check()
    assert found(store).raw == before and not leases[0].is_lost
    assert {given[0] for given in asked} == {lease_name(1)}
    assert {given[2] for given in asked} == {before}


def test_a_lease_that_vanishes_while_it_is_read_is_neither_renewed_nor_lost(
    store: PlainFolder, leases: list[Lease]
) -> None:
    """An older lease, of another owner, does not take the place of the vanished one."""
    write(store, replace(ELSEWHERE, released=True))
    leases.append(Lease.acquire(store, "run"))
    write(store, replace(ELSEWHERE, released=True))

    def vanishes(operation: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise OSError("away")
        if operation == "get":
            (store.folder / lease_name(2)).unlink(missing_ok=True)

    store.fails = vanishes
    time.sleep(0.75 * SECONDS)
    with pytest.raises(OSError, match="was removed while it was read"):
        leases[0].check()
    assert not leases[0].is_lost


def test_a_listing_that_was_made_anyway_tells_of_a_later_machine(
    store: PlainFolder, leases: list[Lease]
) -> None:
    leases.append(Lease.acquire(store, "run"))
    leases[0].check_listed([lease_name(1), "a"])
    with pytest.raises(Resumable, match="Another machine has taken over"):
        leases[0].check_listed([lease_name(1), lease_name(2)])
    assert leases[0].is_lost
    with pytest.raises(Resumable, match="Another machine has taken over"):
        leases[0].check_listed([lease_name(1)])


def test_a_manifest_beside_our_lease_is_to_be_replaced(
    store: PlainFolder, leases: list[Lease]
) -> None:
    """A finished mirror that lacks a file is completed by the run that made it."""
    store.put({MANIFEST_FILE: b"{}"})
    leases.append(Lease.acquire(store, "run"))
    wait_until(lambda: found(store).heartbeat)
    assert not leases[0].is_lost


def test_renewals_go_on_after_one_that_failed(store: PlainFolder, leases: list[Lease]) -> None:
    leases.append(Lease.acquire(store, "run"))
    failures = iter(range(3))

    def fails(operation: str) -> None:
        if next(failures, None) is not None:
            raise ValueError("not even an OSError")

    store.fails = fails
    wait_until(lambda: next(failures, None) is None)
    before = found(store).heartbeat
    wait_until(lambda: found(store).heartbeat > before)


def test_a_renewal_that_failed_is_tried_again_soon() -> None:
    """The pause is an eighth of the interval, at least 1 s, and never longer than the interval."""
    assert [retry_seconds(interval) for interval in (120.0, 10.0, 4.0, 0.2)] == [15, 1.25, 1, 0.2]


def test_it_is_renewed_four_times_in_its_time_and_sooner_after_a_failure(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", "400")
    leases.append(Lease.acquire(store, "run"))
    began = time.monotonic()
    renewals: list[float] = []

    def fails(operation: str) -> None:
        if operation == "list":
            renewals.append(time.monotonic() - began)
            if len(renewals) in (4, 5):
                raise OSError("for now")

    store.fails = fails
    time.sleep(600)
    assert renewals == [100, 200, 300, 400, 412.5, 425, 525]


def test_a_check_asks_the_store_only_after_late_renewals(
    store: PlainFolder, leases: list[Lease]
) -> None:
    leases.append(Lease.acquire(store, "run"))
    asked: list[str] = []

    def asks(operation: str) -> None:
        if threading.current_thread() is threading.main_thread():
            asked.append(operation)
        elif late:
            raise OSError("away")

    late = False
    store.fails = asks
    leases[0].check()
    assert not asked
    late = True
    time.sleep(0.75 * SECONDS)
    leases[0].check()
    assert "put" in asked, "it renews in place of the thread"


def test_after_it_was_stopped_nothing_is_written(store: PlainFolder, leases: list[Lease]) -> None:
    lease = Lease.acquire(store, "run")
    lease.stop()
    before = found(store)
    time.sleep(SECONDS / 2)
    lease.release()
    assert found(store) == before and not before.released
    assert seconds_to_acquire(store, leases) == 0, "this process does not hold it"


def test_a_release_is_written_and_nothing_after_it(store: PlainFolder) -> None:
    lease = Lease.acquire(store, "run")
    lease.release()
    released = found(store)
    assert released.released and released.heartbeat > 0
    time.sleep(SECONDS / 2)
    assert found(store) == released


@pytest.mark.parametrize("hangs", ["a renewal", "the release alone"])
def test_a_store_that_hangs_does_not_keep_the_process(
    store: PlainFolder, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    monkeypatch.setattr("resumerge.mirror.lease.EXIT_SECONDS", 1.0)
    lease = Lease.acquire(store, "run")
    store.fails = lambda operation: time.sleep(3600)
    if hangs == "a renewal":
        time.sleep(SECONDS / 2)
    began = time.monotonic()
    lease.release()
    assert time.monotonic() - began == 1.0, "once, not for each thing that it would do"


# Acquiring


@pytest.mark.parametrize(
    "record",
    [
        replace(HERE, boot_id="another start of this machine", seconds=SECONDS),
        replace(HERE, space="pid:[1]", seconds=SECONDS),
        replace(HERE, host="another name", seconds=SECONDS),
        replace(ELSEWHERE, boot_id="", pid=2**22 - 1),
    ],
    ids=["another start", "another pid namespace", "another host", "an unknown start"],
)
def test_numbers_of_processes_mean_nothing_elsewhere(
    store: PlainFolder, leases: list[Lease], record: LeaseRecord
) -> None:
    """A process whose number is unused here may be alive on another machine."""
    write(store, replace(record, pid=2**22 - 1))
    assert seconds_to_acquire(store, leases) >= SECONDS


def test_where_the_start_of_the_machine_is_unknown_it_is_watched(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.lease.boot_id", lambda: "")
    write(store, replace(HERE, boot_id="", pid=2**22 - 1))
    assert seconds_to_acquire(store, leases) >= SECONDS


def test_an_earlier_lease_of_this_process_is_no_hindrance(
    store: PlainFolder, leases: list[Lease]
) -> None:
    """A lease with the number and start of this process is its own, or that of a dead process."""
    write(store, replace(HERE, born=birth(os.getpid()) or 0))
    assert seconds_to_acquire(store, leases) == 0


def test_where_the_start_of_a_process_is_unknown_it_is_alive(
    store: PlainFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.lease.birth", lambda pid: 0)
    write(store, replace(HERE, pid=os.getppid(), born=77))
    with pytest.raises(InputError, match="Another process"):
        Lease.acquire(store, "run")


@pytest.mark.parametrize("event", ["removed", "released"])
def test_one_that_ends_while_it_is_watched_is_followed_at_once(
    store: PlainFolder, leases: list[Lease], event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", "6")
    write(store, ELSEWHERE)
    beats: list[None] = []

    def heartbeat() -> None:
        beats.append(None)
        if event == "removed":
            store.put({}, [lease_name(1)])
        else:
            write(store, ELSEWHERE.renewed(released=True))

    assert seconds_to_acquire(store, leases, heartbeat=heartbeat) < 3
    assert len(beats) == 1
    assert leases[0].token == 2


def test_it_is_looked_at_often_while_it_is_watched(store: PlainFolder, leases: list[Lease]) -> None:
    write(store, ELSEWHERE)
    beats: list[None] = []
    leases.append(Lease.acquire(store, "run", heartbeat=lambda: beats.append(None)))
    assert 7 <= len(beats) <= 12


@pytest.mark.parametrize("at", ["yesterday", "", "2020-01-01T00:00:00"])
def test_a_time_that_says_nothing_makes_no_lease_old(
    store: PlainFolder, leases: list[Lease], at: str
) -> None:
    store.clock = datetime.now(UTC)
    write(store, replace(ELSEWHERE, at=at))
    assert seconds_to_acquire(store, leases) >= SECONDS


def test_an_hour_is_added_to_what_a_lease_lasts(store: PlainFolder, leases: list[Lease]) -> None:
    store.clock = now = datetime.now(UTC)
    write(store, replace(ELSEWHERE, seconds=3600.0, at=(now - timedelta(minutes=100)).isoformat()))
    assert seconds_to_acquire(store, leases) >= SECONDS


@pytest.mark.parametrize(
    ("minutes", "clock"),
    [(120, None), (59, 0), (-120, 0), (120, -119)],
    ids=["the store has no clock", "less than an hour", "the future", "the store's clock is late"],
)
def test_only_two_clocks_make_a_lease_old(
    store: PlainFolder, leases: list[Lease], minutes: int, clock: int | None
) -> None:
    now = datetime.now(UTC)
    store.clock = None if clock is None else now + timedelta(minutes=clock)
    write(store, replace(ELSEWHERE, at=(now - timedelta(minutes=minutes)).isoformat()))
    assert seconds_to_acquire(store, leases) >= SECONDS


@pytest.mark.parametrize("given", ["0", "-1", "7200", "nan", "soon", ""])
def test_how_long_a_lease_lasts_is_the_stores_to_say_where_the_environment_makes_no_sense(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", given)
    leases.append(Lease.acquire(store, "run"))
    assert found(store).seconds == 4 * store.heartbeat_seconds


def test_a_lease_says_whose_it_is(
    store: PlainFolder, leases: list[Lease], world: VirtualTime
) -> None:
    began = world.wall()
    leases.append(Lease.acquire(store, "the run"))
    record = found(store)
    expected = replace(HERE, run="the run", born=birth(os.getpid()) or 0, seconds=SECONDS)
    names = ("run", "host", "boot_id", "space", "pid", "born", "seconds", "released")
    assert [getattr(record, name) for name in names] == [getattr(expected, name) for name in names]
    assert began <= datetime.fromisoformat(record.at) <= world.wall()


def test_one_that_was_written_before_the_answer_was_lost_is_held(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PlainFolder.put_if_absent
    answers = iter([OSError("the line was cut")])

    def cut(store: PlainFolder, name: str, data: bytes) -> bool:
        written = real(store, name, data)
        if error := next(answers, None):
            raise error
        return written

    monkeypatch.setattr(PlainFolder, "put_if_absent", cut)
    assert seconds_to_acquire(store, leases) < SECONDS
    assert leases[0].token == 1
    time.sleep(SECONDS / 2)
    leases[0].check()


def test_where_a_store_cannot_tell_the_last_writer_wins(
    tmp_path: Path, leases: list[Lease], world: VirtualTime
) -> None:
    store = Weak(tmp_path / "mirror")

    def later() -> None:
        time.sleep(store.settle_seconds / 2)
        write(PlainFolder(store.folder), last)

    def happens(operation: str) -> None:
        if operation == "put":
            Threading(world).Thread(later).start()

    last = replace(HERE, pid=os.getppid(), born=birth(os.getppid()) or 0)
    store.fails = happens
    with pytest.raises(InputError, match="Another process is working on this mirror"):
        Lease.acquire(store, "run")


def test_who_takes_over_and_is_too_late_does_not_take_over_twice(store: PlainFolder) -> None:
    parent = replace(HERE, owner="quicker", pid=os.getppid(), born=birth(os.getppid()) or 0)
    write(store, ELSEWHERE)

    def happens(operation: str) -> None:
        if operation == "put_if_absent" and lease_name(2) not in PlainFolder(store.folder).list():
            write(PlainFolder(store.folder), parent, 2)

    store.fails = happens
    with pytest.raises(InputError, match="Another process"):
        Lease.acquire(store, "run", take_over=True)


def test_something_else_with_the_name_of_the_next_lease_is_told(tmp_path: Path) -> None:
    """A folder with the name of the next lease is not listed, and no file can be created there."""
    store = FolderStore(tmp_path / "mirror")
    (store.folder / lease_name(1)).mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"lease of the mirror cannot be acquired(.|\n)*lease-000001\.json"
    ):
        Lease.acquire(store, "run")


def test_after_the_last_number_there_is_no_lease(store: PlainFolder) -> None:
    write(store, replace(ELSEWHERE, released=True), LARGEST_TOKEN)
    with pytest.raises(InputError, match=r"lease-999999999\.json"):
        Lease.acquire(store, "run")
