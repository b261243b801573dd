"""Promise: who knows the repo that a run is mirrored to can go on with it, with nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback_hub import Hub
from machines import HELD, SLOW, WATCHES, Machine, files_of, held, in_mirror, kill
from waiting import wait_until

from resumerge.mirror.stores.registry import open_store

URL, REPO = "hf://org/merged", "org/merged"
KILLS = 3


@pytest.fixture
def new(
    hub: Hub, tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Machine]:
    """Return a function that makes machines that have nothing but a token."""
    hub.tokens = {"hf_test": "write"}
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    numbers = iter(range(1000))

    def make() -> Machine:
        folder = tmp_path / str(next(numbers))
        env = {**hub.settings, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "0"}
        return Machine(folder, models, environment={**env, "HF_TOKEN": "hf_test"})

    return make


def shards(hub: Hub) -> set[str]:
    """Return the names of the shards in the repo."""
    there = hub.contents(REPO) if REPO in hub.repos else {}
    return {name for name in there if name.endswith(".safetensors")}


def test_killed_again_and_again_and_always_another_machine(
    hub: Hub, new: Callable[[], Machine], reference_of_machines: dict[str, bytes], soak: bool
) -> None:
    for seed in range(20 if soak else 1):
        print(f"seed {seed}")
        draw = random.Random(seed)
        machine, before = new(), in_mirror(URL)
        machine.hold(39 // KILLS - 1)
        process = machine.begin(URL, **SLOW)
        for kills in range(1, KILLS + 1):
            target = len(shards(hub)) + draw.randint(0, 1)
            # Without a snapshot, the next machine would find no run.
            wait_until(lambda: held(URL).snapshot and len(shards(hub)) >= target, process)  # noqa: B023
            time.sleep(draw.uniform(0.0, 0.2))
            kill(process)
            before = in_mirror(URL)
            # A beat of the lease may bring a shard just before the snapshot that names it.
            assert len(before.sealed) >= target - 1
            for name in before.sealed:
                assert hub.contents(REPO)[name] == reference_of_machines[name]
            machine.wipe()
            machine = new()
            if kills < KILLS:
                machine.hold(39 // KILLS - 1)
            process = machine.start("resume", URL, "--threads", "1", **SLOW)
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert "hf_test" not in out + err
        rows = machine.rows("SELECT number, attempt, batch FROM units")
        found = {row["number"]: (row["attempt"], row["batch"]) for row in rows}
        for number, by in before.units.items():
            assert found[number] == by, f"{number} was computed again"
        there = hub.contents(REPO)
        done = there.pop(".resumerge/done.json")
        assert there == reference_of_machines
        assert b"hf_test" not in done
        machine.wipe()
        del hub.repos[REPO]


def test_one_machine_at_a_time(
    hub: Hub, new: Callable[[], Machine], reference_of_machines: dict[str, bytes]
) -> None:
    first, second = new(), new()
    first.hold(HELD)  # alive until it is killed
    process = first.begin(URL, **SLOW)
    wait_until(lambda: shards(hub), process)
    _, err = second.call("resume", URL, expect=2, **WATCHES)
    assert "is working on this mirror" in err
    assert not second.out.exists()
    kill(process)
    second.call("resume", URL, "--bring-back")
    assert files_of(second.out) == reference_of_machines
    there = hub.contents(REPO)
    del there[".resumerge/done.json"]
    assert there == reference_of_machines


def test_a_repo_without_a_run_is_refused_and_not_made(hub: Hub, new: Callable[[], Machine]) -> None:
    machine = new()
    _, err = machine.call("resume", URL, expect=2)
    assert "no run in this mirror" in err
    hub.commit(REPO, {"config.json": b"{}", "model.safetensors": b"someone else's"})
    _, err = machine.call("resume", URL, expect=2)
    process = machine.begin(URL)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "contains other files" in err
    assert hub.contents(REPO) == {"config.json": b"{}", "model.safetensors": b"someone else's"}
    assert len(hub.repos[REPO].commits) == 1


def test_offline_a_mirror_on_the_hub_is_refused(hub: Hub, new: Callable[[], Machine]) -> None:
    machine = new()
    process = machine.begin(URL, "--offline")
    _, err = process.communicate()
    assert process.returncode == 2
    assert "Offline mode is on" in err
    assert not machine.out.exists()
    assert not machine.rows("SELECT * FROM run")
    assert hub.requests == []


def test_an_edited_card_hinders_nobody_and_is_kept_where_all_is_made_again(
    hub: Hub, new: Callable[[], Machine], reference_of_machines: dict[str, bytes]
) -> None:
    process = new().begin(URL)
    _, err = process.communicate()
    assert process.returncode == 0, err
    open_store(URL).put({"README.md": b"my own words"})
    other = new()
    _, err = other.call("resume", URL)
    assert "already done" in err
    process = other.begin(URL, "--restart")
    _, err = process.communicate()
    assert process.returncode == 0, err
    there = hub.contents(REPO)
    assert there["README.md.kept"] == b"my own words"
    assert {name: there.get(name) for name in reference_of_machines} == reference_of_machines
