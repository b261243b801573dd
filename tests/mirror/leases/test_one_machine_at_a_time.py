"""Promise: one machine works on a mirror; who is dead is followed, who was followed stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from made_up_leases import ELSEWHERE, HERE, SECONDS, seconds_to_acquire, write
from plain_folder import PlainFolder, Weak
from virtual_machines import Threading
from virtual_time import VirtualTime
from waiting import HANGS_SECONDS

from resumerge.errors import InputError, Resumable
from resumerge.host.machine import hostname
from resumerge.host.processes import birth
from resumerge.mirror import Lease
from resumerge.mirror.lease_record import LeaseRecord, read_lease
from resumerge.mirror.names import MANIFEST_FILE, lease_name
from resumerge.mirror.stores.base import METADATA

TAKES = """
import os, sys, time
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, {here!r})
from plain_folder import PlainFolder, Weak
from resumerge.errors import InputError
from resumerge.mirror import Lease, lease as module
def put(name, data):
    try:
        return kind.put_if_absent(store, name, data)
    finally:
        mark.unlink(missing_ok=True)
def settle(seconds):
    time.sleep(seconds)
    while not mark.exists() and [*mark.parent.glob(store.folder.name + ".*.takes")]:
        time.sleep(0.01)
module.time = SimpleNamespace(sleep=settle)
kind = {{"PlainFolder": PlainFolder, "Weak": Weak}}[sys.argv[1]]
print("ready", flush=True)
while folder := sys.stdin.readline().strip():
    store, mark = kind(Path(folder)), Path(f"{{folder}}.{{os.getpid()}}.takes")
    store.put_if_absent = put
    mark.touch()
    try:
        lease = Lease.acquire(store, "run")
    except InputError as error:
        print("refused", flush=True)
        continue
    finally:
        mark.unlink(missing_ok=True)
    print("taken", lease.token, flush=True)
    try:
        while sys.argv[2] == "keep":
            lease.check()
            time.sleep(0.01)
    except Exception as error:
        print(error.reason, flush=True)
        sys.exit(75)
"""
"""A process has a mark until it has written its lease, or is refused: a place in which files need
time to be seen has seen them when no process has one, however slow the processes are."""


def machine(
    kind: str = "PlainFolder", keep: str = "keep", host: str = "", lease_seconds: float = SECONDS
) -> subprocess.Popen[str]:
    """Start a process that can take a lease, on a machine of another name if one is given.

    Args:
        keep: what the process does with a lease: ``keep`` it, or ``leave`` it to its thread.
    """
    words = [sys.executable, "-c", TAKES.format(here=str(Path(__file__).parents[1])), kind, keep]
    if host:
        words = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh", *words]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, "RESUMERGE_LEASE_SECONDS": str(lease_seconds)}
    process = subprocess.Popen(words, **pipes, env=environment, text=True)
    assert says(process) == "ready"
    return process


def take(process: subprocess.Popen[str], folder: Path) -> None:
    """Have a machine take the lease of a folder."""
    assert process.stdin is not None
    print(folder, file=process.stdin, flush=True)


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        error = process.communicate()[1]
        if "unshare" in error:
            pytest.skip(f"a machine of another name cannot be played here: {error.strip()}")
        raise AssertionError(error)
    return line


def test_another_machine_whose_heart_beats_is_not_disturbed(
    store: PlainFolder, world: VirtualTime
) -> None:
    write(store, ELSEWHERE)
    threading = Threading(world)
    over = threading.Event()

    def heartbeat() -> None:
        record = ELSEWHERE
        while not over.wait(SECONDS / 4):
            record = record.renewed(released=False)
            write(store, record)

    thread = threading.Thread(target=heartbeat)
    thread.start()
    notes: list[str] = []
    try:
        with pytest.raises(InputError, match="pid 77 on elsewhere"):
            Lease.acquire(store, "run", note=notes.append)
    finally:
        over.set()
        thread.join()
    assert "pid 77 on elsewhere" in notes[0]
    assert "--take-over" in notes[0]
    assert list(store.list()) == [lease_name(1)]


def test_one_whose_heart_stands_still_is_followed_after_its_time(
    store: PlainFolder, leases: list[Lease]
) -> None:
    write(store, ELSEWHERE)
    assert seconds_to_acquire(store, leases) >= SECONDS
    assert leases[0].token == 2
    record = read_lease(store)
    assert record is not None
    assert (record.host, record.pid) == (hostname(), os.getpid())


def test_how_long_is_waited_is_said_by_the_lease(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RESUMERGE_LEASE_SECONDS")
    write(store, replace(ELSEWHERE, seconds=2.0))
    assert 2.0 <= seconds_to_acquire(store, leases) < 6.0


def test_a_time_that_is_absurd_is_not_waited_for(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.lease_record.LONGEST_SECONDS", 0.5)
    for token, seconds in enumerate((1e300, -5.0), 1):
        write(store, replace(ELSEWHERE, seconds=seconds), token * 10)
        leases.append(Lease.acquire(store, "run"))
        leases[-1].stop()


@pytest.mark.parametrize(
    ("record", "token"),
    [
        (replace(ELSEWHERE, released=True), 1),
        (replace(HERE, born=1), 1),
        (replace(HERE, pid=2**22 - 1), 41),
    ],
    ids=["released", "its number is another process's now", "its process is gone"],
)
def test_one_that_is_known_to_have_ended_is_followed_at_once(
    store: PlainFolder, leases: list[Lease], record: LeaseRecord, token: int
) -> None:
    write(store, record, token)
    assert seconds_to_acquire(store, leases) == 0
    assert leases[0].token == token + 1


def test_a_live_process_of_this_machine_is_not_disturbed(store: PlainFolder) -> None:
    parent = os.getppid()
    write(store, replace(HERE, pid=parent, born=birth(parent) or 0))
    began = time.monotonic()
    with pytest.raises(InputError, match=f"pid {parent} on"):
        Lease.acquire(store, "run")
    assert time.monotonic() == began


def test_two_in_one_process_are_two(store: PlainFolder, leases: list[Lease]) -> None:
    leases.append(Lease.acquire(store, "run"))
    with pytest.raises(InputError):
        Lease.acquire(store, "run")
    leases[0].release()
    leases.append(Lease.acquire(store, "run"))
    assert leases[1].token == 2


def test_the_user_may_know_better(store: PlainFolder, leases: list[Lease]) -> None:
    write(store, ELSEWHERE)
    assert seconds_to_acquire(store, leases, take_over=True) == 0


def test_epochs_of_snapshots_count(store: PlainFolder, leases: list[Lease]) -> None:
    store.put({f"{METADATA}/ledger-000007-000001-{'0' * 32}.db": b""})
    leases.append(Lease.acquire(store, "run"))
    assert leases[0].token == 8


def test_old_by_both_clocks_is_followed_at_once_and_by_one_of_them_is_watched(
    store: PlainFolder, leases: list[Lease]
) -> None:
    hours = timedelta(hours=2)
    old = (datetime.now(UTC) - hours).isoformat()
    write(store, replace(ELSEWHERE, at=old))
    store.clock = datetime.now(UTC) - hours  # ours runs ahead
    assert seconds_to_acquire(store, leases) >= SECONDS
    leases[0].stop()
    write(store, replace(ELSEWHERE, at=old), 9)
    store.clock = datetime.now(UTC)
    assert seconds_to_acquire(store, leases) == 0


def test_who_was_followed_finds_it_and_writes_nothing_more(
    store: PlainFolder, leases: list[Lease]
) -> None:
    leases.append(Lease.acquire(store, "run"))
    first = leases[0]
    first.check()
    write(store, ELSEWHERE, 2)
    before = store.list()
    time.sleep(SECONDS)
    with pytest.raises(Resumable, match="Another machine has taken over") as lost:
        first.check()
    assert lost.value.reason == "mirror_taken_over"
    first.release()
    assert store.list() == before
    assert (store.folder / lease_name(2)).read_bytes() == ELSEWHERE.as_bytes()


def test_who_was_followed_while_it_was_suspended_writes_nothing_more(tmp_path: Path) -> None:
    store = PlainFolder(tmp_path / "mirror")
    first = machine()
    second = None
    try:
        take(first, store.folder)
        assert says(first) == "taken 1"
        first.send_signal(signal.SIGSTOP)
        second = machine(host="second")
        take(second, store.folder)
        assert says(second) == "taken 2"
        first.send_signal(signal.SIGCONT)
        assert says(first) == "mirror_taken_over"
        assert first.wait() == 75
        assert second.poll() is None
        record = read_lease(store)
        assert record is not None
        assert (record.host, record.token) == ("second", 2)
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.communicate()


def test_who_was_quicker_in_following_a_dead_one_is_not_dead(store: PlainFolder) -> None:
    write(store, replace(HERE, pid=2**22 - 1))
    parent = os.getppid()
    quicker = replace(HERE, owner="quicker", pid=parent, born=birth(parent) or 0, token=2)
    seen: list[str] = []

    def happens(name: str) -> None:
        if "get" in seen and name in ("list", "put_if_absent") and "quicker" not in seen:
            seen.append("quicker")
            write(store, quicker, 2)
        seen.append(name)

    store.fails = happens
    with pytest.raises(InputError, match="working on this mirror"):
        Lease.acquire(store, "run")
    assert "quicker" in seen


@pytest.mark.parametrize("kind", [PlainFolder, Weak])
def test_of_two_that_start_at_once_on_a_dead_lease_one_wins(
    tmp_path: Path, kind: type[PlainFolder]
) -> None:
    # A lease that is being written is watched for as long as its writer may stand still.
    both = [machine(kind.__name__, "leave", lease_seconds=HANGS_SECONDS) for _ in range(2)]
    # Written by both at once, a weak place's file may be nobody's: it is followed, too.
    won = ["taken 2", "taken 3"] if kind is Weak else ["taken 2"]
    try:
        for attempt in range(5):
            store = kind(tmp_path / str(attempt))
            write(store, replace(HERE, pid=2**22 - 1))
            for process in both:
                take(process, store.folder)
            said = sorted(says(process) for process in both)
            assert said[0] == "refused" and said[1] in won, said
    finally:
        for process in both:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[" * 30000,
        b"x" * 70000,
        json.dumps({**json.loads(ELSEWHERE.as_bytes()), "pid": "77"}).encode(),
        json.dumps({**json.loads(ELSEWHERE.as_bytes()), "seconds": float("nan")}).encode(),
        json.dumps({**json.loads(ELSEWHERE.as_bytes()), "host": "h" * 1000}).encode(),
    ],
    ids=range(8),
)
def test_what_cannot_be_read_as_a_lease_is_watched_like_one(
    store: PlainFolder, leases: list[Lease], raw: bytes
) -> None:
    store.put({lease_name(3): raw})
    assert seconds_to_acquire(store, leases) >= SECONDS
    assert leases[0].token == 4


def test_a_place_that_fails_for_a_moment_is_asked_again(
    tmp_path: Path, leases: list[Lease]
) -> None:
    failures = iter(range(5))

    def fails(operation: str) -> None:
        if next(failures, None) is not None:
            raise OSError("Transport endpoint is not connected")

    store = PlainFolder(tmp_path / "mirror", fails)
    leases.append(Lease.acquire(store, "run"))
    assert leases[0].token == 1


def test_while_the_place_is_out_of_reach_nothing_may_be_written(
    tmp_path: Path, leases: list[Lease]
) -> None:
    store = PlainFolder(tmp_path / "mirror")
    leases.append(Lease.acquire(store, "run"))

    def fails(operation: str) -> None:
        raise OSError("Transport endpoint is not connected")

    store.fails = fails
    time.sleep(SECONDS)
    with pytest.raises(OSError, match="Transport"):
        leases[0].check()
    store.fails = lambda operation: None
    leases[0].check()  # it is ours still


def test_books_that_are_gone_are_not_written_again(tmp_path: Path, leases: list[Lease]) -> None:
    """An unmounted drive leaves an empty folder, in which no lease is written again."""
    store = PlainFolder(tmp_path / "mirror")
    leases.append(Lease.acquire(store, "run"))
    store.folder.rename(tmp_path / "unmounted")
    store.folder.mkdir()
    time.sleep(SECONDS)
    with pytest.raises(OSError, match="gone"):
        leases[0].check()
    assert not store.list()


def test_a_finished_mirror_is_lost_to_who_was_followed(
    store: PlainFolder, leases: list[Lease]
) -> None:
    leases.append(Lease.acquire(store, "run"))
    store.put({MANIFEST_FILE: b"{}"}, [lease_name(1)])
    time.sleep(SECONDS)
    with pytest.raises(Resumable):
        leases[0].check()
    assert list(store.list()) == [MANIFEST_FILE]


def test_who_releases_is_followed_at_once_by_another_machine(
    store: PlainFolder, leases: list[Lease]
) -> None:
    first = Lease.acquire(store, "run")
    first.release()
    second = machine(host="second", lease_seconds=3600)  # it would be watched for so long
    try:
        take(second, store.folder)
        assert says(second) == "taken 2"
        record = read_lease(store)
        assert record is not None
        assert record.host == "second"
    finally:
        second.kill()
        second.communicate()
