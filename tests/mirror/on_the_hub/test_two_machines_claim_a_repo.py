"""Of two machines that claim the same name in a repo at the same time, exactly one gets it."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import Hub
from repo_of_the_hub import REPO, URL

from resumerge.mirror.stores.hub import TRIES, HubStore

ROOT = Path(__file__).parents[3]
NAME = ".resumerge/lease-000001.json"
CLAIM = f"""
import sys
from resumerge.mirror.stores.hub import HubStore
place = HubStore({URL!r})
place.list()
print("ready", flush=True)
sys.stdin.readline()
print(place.put_if_absent({NAME!r}, sys.argv[1].encode()), flush=True)
"""


def test_the_first_wins_and_the_second_is_told(hub: Hub) -> None:
    assert HubStore(URL).put_if_absent(NAME, b"first")
    assert not HubStore(URL).put_if_absent(NAME, b"second")
    assert hub.contents(REPO) == {NAME: b"first"}


@pytest.mark.parametrize("there", [False, True])
def test_threads_that_claim_at_once(hub: Hub, there: bool) -> None:
    if there:
        HubStore(URL).put({"config.json": b"{}"})
    for turn in range(15):
        name = NAME.replace("000001", f"{turn:06}")
        places = [HubStore(URL) for _ in range(3)]
        barrier = threading.Barrier(len(places))
        won: list[int] = []

        def claim(number: int, store: HubStore) -> None:
            barrier.wait()  # noqa: B023
            if store.put_if_absent(name, b"%d" % number):  # noqa: B023
                won.append(number)  # noqa: B023

        threads = [threading.Thread(target=claim, args=pair) for pair in enumerate(places)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert hub.contents(REPO)[name] == b"%d" % won[0]


def test_processes_that_claim_at_once(hub: Hub) -> None:
    def start(number: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CLAIM, f"machine {number}"],
            env=hub.env(PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="0"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    machines = [start(number) for number in range(3)]
    for machine in machines:
        assert machine.stdout is not None
        assert machine.stdout.readline() == "ready\n"
    for machine in machines:
        assert machine.stdin is not None
        machine.stdin.write("go\n")
        machine.stdin.flush()
    said = [machine.communicate()[0].strip() for machine in machines]
    assert sorted(said) == ["False", "False", "True"]
    assert hub.contents(REPO) == {NAME: f"machine {said.index('True')}".encode()}


def test_a_claim_among_other_commits(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another commit precedes each try but the last, and the name is still free."""
    store, other = HubStore(URL), HubStore(URL)
    listing, looks = store._repo.listing, count()

    def listing_before_another_commit() -> Any:
        found, look = listing(), next(looks)
        if look % TRIES != TRIES - 1:
            other.put({"beat": b"%d" % look})
        return found

    monkeypatch.setattr(store._repo, "listing", listing_before_another_commit)
    for epoch in range(2):
        assert store.put_if_absent(f"lease-{epoch}", b"mine")
    assert next(looks) == 2 * TRIES


@pytest.mark.parametrize(("changed", "is_written"), [(NAME, False), ("beat", True)])
def test_what_is_committed_between_a_look_and_a_commit_is_not_overwritten(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, changed: str, is_written: bool
) -> None:
    """A second look finds that the file was changed; a commit of another file does no harm."""
    store, other = HubStore(URL), HubStore(URL)
    other.put({NAME: b"before"})
    get, looks = store.get, count()

    def get_before_another_commit(name: str) -> bytes:
        found = get(name)
        if next(looks) == 0:
            other.put({changed: b"theirs"})
        return found

    monkeypatch.setattr(store, "get", get_before_another_commit)
    assert store.put_if_unchanged(NAME, b"mine", b"before") is is_written
    expected = {NAME: b"mine", changed: b"theirs"}  # of one name, theirs
    assert hub.contents(REPO) == expected
