"""Promise: a machine that dies, with all it had, is followed by another that knows the mirror."""

from __future__ import annotations

import fcntl
import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machines import (
    EXCLUDABLE,
    HELD,
    SLOW,
    WATCHES,
    Machine,
    files_of,
    held,
    in_mirror,
    kill,
    resume_line,
    skip_without_names,
)
from safetensors.torch import load_file, save_file
from waiting import wait_until

KILLS = 3
HELD_AFTER_HALF = 12
"""Blocks after which a process that continued with three shards of eight, or more, is held."""


@pytest.fixture
def new(store: Path, models: Path, request: pytest.FixtureRequest) -> Callable[[], Machine]:
    """Return a function that makes machines."""
    numbers = iter(range(1000))
    name = f"{abs(hash(request.node.name)) % 10**6}"
    return lambda: Machine(store / f"{name}-{next(numbers)}", models)


@pytest.fixture
def mirror(store: Path) -> Iterator[Path]:
    folder = store / "mirror"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def died(store: Path, models: Path) -> tuple[Machine, Path]:
    """Return a machine that was killed with three shards of eight in its mirror, and the mirror."""
    machine, mirror = Machine(store / "died", models), store / "its mirror"
    machine.hold(26)
    process = machine.begin(mirror, **SLOW)
    wait_until(lambda: len(in_mirror(mirror).sealed) >= 3, process)
    kill(process)
    machine.let_go()
    return machine, mirror


@pytest.fixture
def half(died: tuple[Machine, Path], mirror: Path, store: Path) -> Path:
    """Return a mirror with at least three shards, whose machine is gone with all that it had."""
    kept = store / "kept"
    if kept.exists():
        shutil.rmtree(died[0].folder, ignore_errors=True)
    else:
        died[0].folder.rename(kept)
    shutil.copytree(died[1], mirror)
    return mirror


@pytest.fixture
def first(died: tuple[Machine, Path], half: Path, store: Path) -> Machine:
    """Return the machine of `died`, switched on again with its disk."""
    shutil.copytree(store / "kept", died[0].folder, symlinks=True)
    return died[0]


def test_killed_again_and_again_and_always_another_machine(
    new: Callable[[], Machine], mirror: Path, reference_of_machines: dict[str, bytes], soak: bool
) -> None:
    """Each process is held after a third of the work at most, so that it does not come to the end
    before it is killed."""
    for seed in range(20 if soak else 1):
        print(f"seed {seed}")
        draw = random.Random(seed)
        machine, before = new(), in_mirror(mirror)
        for _ in range(KILLS):
            machine.hold(39 // KILLS - 1)
            process = (
                machine.start("resume", mirror, "--threads", "1", **SLOW)
                if held(mirror).snapshot
                else machine.begin(mirror, **SLOW)
            )
            target = len(before.sealed) + draw.randint(0, 1)
            wait_until(lambda: len(in_mirror(mirror).sealed) >= target, process)  # noqa: B023
            time.sleep(draw.uniform(0.0, 0.4))
            kill(process)
            assert_kept(machine, before)
            before = in_mirror(mirror)
            for name in before.sealed:
                assert (mirror / name).read_bytes() == reference_of_machines[name]
            assert not (mirror / "config.json").exists()
            machine.wipe()
            machine = new()
        process = machine.begin(mirror)
        _, err = process.communicate()
        assert process.returncode == 0, err
        assert_kept(machine, before)
        (last,) = machine.rows("SELECT units_committed FROM attempts ORDER BY n DESC LIMIT 1")
        assert last["units_committed"] == 39 - len(before.units)
        assert files_of(mirror) == reference_of_machines
        assert not (machine.out / "config.json").exists(), "shards are in the mirror alone"
        assert [path.name for path in (mirror / ".resumerge").iterdir()] == ["done.json"]
        machine.wipe()
        if soak:
            shutil.rmtree(mirror)


def assert_kept(machine: Machine, before: object) -> None:
    """Assert that no tensor of a shard that was in the mirror was computed again."""
    rows = machine.rows("SELECT number, attempt, batch FROM units")
    found = {row["number"]: (row["attempt"], row["batch"]) for row in rows}
    for number, by in before.units.items():  # type: ignore[attr-defined]
        assert not found or found[number] == by, f"{number} was computed again"


def test_the_finished_mirror_is_a_model_that_loads(
    new: Callable[[], Machine], half: Path, mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    from transformers import AutoModelForCausalLM

    new().call("resume", mirror)
    model = AutoModelForCausalLM.from_pretrained(mirror)
    assert sum(p.numel() for p in model.parameters()) > 10_000
    assert files_of(mirror) == reference_of_machines


def test_run_goes_on_with_what_the_mirror_holds(
    new: Callable[[], Machine], half: Path, mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    before = in_mirror(mirror)
    machine = new()
    process = machine.begin(mirror)
    assert process.communicate() and process.returncode == 0
    assert_kept(machine, before)
    assert files_of(mirror) == reference_of_machines
    # Once it is finished, there is nothing to do on any machine.
    third = new()
    process = third.begin(mirror)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "already done" in err
    assert f"{third.out} was not made; add --bring-back" in " ".join(err.split())
    assert not third.out.exists()
    assert not third.rows("SELECT * FROM run")


def test_another_recipe_is_refused_and_nothing_is_touched(
    new: Callable[[], Machine], half: Path, mirror: Path
) -> None:
    before = files_of(mirror)
    other = new()
    (other.work / "recipe.yaml").write_text("merge_method: linear\nparameters: {weight: 1}\n"
                                            "models: [{model: math}, {model: code}]\n")  # fmt: skip
    process = other.begin(mirror)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "another run" in err
    assert files_of(mirror) == before
    assert not other.out.exists()
    finisher = new()
    finisher.call("resume", mirror)
    process = other.begin(mirror)
    _, err = process.communicate()
    assert process.returncode == 2, err
    assert "another run" in err


def test_files_of_others_are_left_alone(new: Callable[[], Machine], mirror: Path) -> None:
    mirror.mkdir()
    (mirror / "holiday.jpg").write_bytes(b"a picture")
    machine = new()
    process = machine.begin(mirror)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "holiday.jpg" in err
    assert [path.name for path in mirror.iterdir()] == ["holiday.jpg"]
    assert not machine.out.exists()
    assert not machine.rows("SELECT * FROM run")
    _, err = machine.call("resume", mirror, expect=2)
    assert "no run" in err.lower()


def test_a_second_machine_is_refused_while_the_first_lives_and_follows_when_it_is_dead(
    new: Callable[[], Machine], mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    skip_without_names()
    first, second = new(), new()
    first.hold(HELD)
    process = first.begin(mirror, **SLOW)
    wait_until(lambda: in_mirror(mirror).sealed, process)
    _, err = second.call("resume", mirror, expect=2, **WATCHES)
    assert f"machine-{first.folder.name}" in err
    assert process.poll() is None
    assert not second.out.exists()
    kill(process)
    before = in_mirror(mirror)
    _, err = second.call("resume", mirror)
    assert "is dead: taking over" in err
    assert_kept(second, before)
    assert files_of(mirror) == reference_of_machines


def test_one_that_was_suspended_and_followed_stops_and_writes_nothing_more(
    new: Callable[[], Machine], mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    """A machine that is suspended in the midst of a write would finish it when it wakes."""
    skip_without_names()
    first, second = new(), new()
    lock = first.folder / "lock"
    first.before = EXCLUDABLE.format(lock=str(lock))
    first.hold(HELD)
    process = first.begin(mirror, "--no-supervise", **SLOW)
    wait_until(lambda: in_mirror(mirror).sealed, process)
    threads = Path(f"/proc/{process.pid}/task")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # no operation on the mirror is under way
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: states_of(threads) == {"T"}, process)
    second.call("resume", mirror)
    done = {path: path.stat().st_mtime_ns for path in sorted(mirror.rglob("*"))}
    first.let_go()
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate()
    assert process.returncode == 75, err
    assert "taken over" in err
    assert {path: path.stat().st_mtime_ns for path in sorted(mirror.rglob("*"))} == done
    assert files_of(mirror) == reference_of_machines
    # The command that it prints continues: the model is finished over there.
    again = first.call_line(resume_line(err))
    assert again.returncode == 0, again.stderr
    assert "already done" in again.stderr


def states_of(threads: Path) -> set[str]:
    """Return the states of a process's threads: T is stopped, and empty text has just ended."""
    states = set()
    for thread in threads.iterdir():
        try:
            states.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            states.add("")
    return states


def test_a_damaged_and_a_missing_shard_are_found_and_computed_again(
    new: Callable[[], Machine], half: Path, mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    damaged, missing, *_ = sorted(in_mirror(mirror).sealed)
    data = bytearray((mirror / damaged).read_bytes())
    data[-7] ^= 1
    (mirror / damaged).write_bytes(data)
    (mirror / missing).unlink()
    machine = new()
    machine.call("resume", mirror)
    rows = machine.rows("SELECT data FROM events WHERE kind = 'mirror_damaged' ORDER BY id")
    found = {json.loads(row["data"])["name"]: json.loads(row["data"])["found"] for row in rows}
    assert found == {damaged: "different content", missing: "missing"}
    assert files_of(mirror) == reference_of_machines


def test_shards_come_back_where_that_is_asked_for(
    new: Callable[[], Machine], half: Path, mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    machine = new()
    machine.call("resume", mirror, "--bring-back", "--output", "here")
    found = files_of(machine.work / "here")
    assert found.pop("README.md") != reference_of_machines["README.md"], "it has another name"
    assert found == {k: v for k, v in reference_of_machines.items() if k != "README.md"}
    other = new()
    other.call("resume", mirror, "--bring-back", "--output", "there")
    assert files_of(other.work / "there") == files_of(mirror)


def test_what_is_brought_back_stays_though_the_run_frees_its_shards(
    new: Callable[[], Machine], mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    first = new()
    first.hold(HELD)
    process = first.begin(mirror, "--mirror-then-delete", **SLOW)
    wait_until(lambda: len(in_mirror(mirror).sealed) >= 2, process)
    kill(process)
    first.wipe()
    second = new()
    second.call("resume", mirror, "--bring-back", "--output", "here")
    found = files_of(second.work / "here")
    assert {k: v for k, v in found.items() if k != "README.md"} == {
        k: v for k, v in reference_of_machines.items() if k != "README.md"
    }
    _, both = second.call("resume", "--bring-back", "--mirror-then-delete", expect=2)
    assert "leave one of them out" in both


def test_the_first_machine_may_come_back_and_go_on_where_the_second_stopped(
    new: Callable[[], Machine],
    first: Machine,
    half: Path,
    mirror: Path,
    reference_of_machines: dict[str, bytes],
) -> None:
    second, known = new(), len(in_mirror(mirror).sealed)
    second.hold(HELD_AFTER_HALF)
    process = second.start("resume", mirror, "--threads", "1", **SLOW)
    wait_until(lambda: len(in_mirror(mirror).sealed) > known, process)
    kill(process)
    before = in_mirror(mirror)
    first.call("resume", mirror)
    computed = first.rows("SELECT sum(units_committed) AS n FROM attempts WHERE n > 1")[0]["n"]
    assert "shard_from_mirror" in first.events()
    assert computed <= 39 - len(before.units)
    assert files_of(mirror) == reference_of_machines


def test_what_another_machine_merged_of_other_models_is_not_mixed_with_ours(
    new: Callable[[], Machine], first: Machine, half: Path, mirror: Path
) -> None:
    """The other machine's model differs in tensors that this machine has not read yet."""
    second, known = new(), len(in_mirror(mirror).sealed)
    later = {row["name"] for row in first.rows(f"SELECT name FROM units WHERE shard >= {known}")}
    file = second.work / "math" / "model.safetensors"
    tensors = load_file(file)
    save_file({n: t + (n in later) for n, t in tensors.items()}, file, {"format": "pt"})
    away = first.folder.rename(first.folder.with_name("away"))  # its models are not here
    second.hold(HELD_AFTER_HALF)
    process = second.start("resume", mirror, "--threads", "1", **SLOW)
    wait_until(lambda: len(in_mirror(mirror).sealed) > known, process)
    kill(process)
    away.rename(first.folder)
    _, err = first.call("resume", mirror, expect=2)
    assert "math/model.safetensors has different contents" in err


def test_a_run_that_stops_short_says_how_to_go_on_and_that_works(
    new: Callable[[], Machine], half: Path, mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    machine = new()
    machine.hold(HELD_AFTER_HALF)
    process = machine.start("resume", mirror, "--threads", "1", **SLOW)
    wait_until(lambda: machine.rows("SELECT * FROM attempts WHERE n > 1"), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    machine.let_go()  # not before: it could finish before its worker has the signal
    assert process.returncode == 143, err
    line = resume_line(err)
    assert "--state-dir" in line
    done = machine.call_line(line)
    assert done.returncode == 0, done.stderr
    assert files_of(mirror) == reference_of_machines


def test_a_worker_that_is_killed_is_resumed_with_the_lease_of_its_machine(
    new: Callable[[], Machine], mirror: Path, reference_of_machines: dict[str, bytes]
) -> None:
    machine = new()
    (machine.folder / "accidents" / "segfault").touch()
    process = machine.begin(mirror)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "worker_crashed" in machine.events()
    assert "whether it is alive" not in err, "its own machine's lease is not watched"
    assert files_of(mirror) == reference_of_machines


def test_starting_over_gives_up_what_the_run_wrote_there_and_nothing_else(
    new: Callable[[], Machine],
    first: Machine,
    half: Path,
    mirror: Path,
    reference_of_machines: dict[str, bytes],
) -> None:
    (mirror / "holiday.jpg").write_bytes(b"a picture")
    before = files_of(mirror)
    process = first.begin(mirror, "--restart")
    _, err = process.communicate()
    assert process.returncode == 2, err
    assert "holiday.jpg" in err
    assert files_of(mirror) == before
    (mirror / "holiday.jpg").unlink()
    process = first.begin(mirror, "--restart")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert files_of(mirror) == reference_of_machines
    assert first.rows("SELECT count(*) AS n FROM attempts")[0]["n"] == 1
    # A machine that does not know the run starts over, also a finished one.
    other = new()
    process = other.begin(mirror, "--restart")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "already done" not in err
    assert files_of(mirror) == reference_of_machines


def test_a_run_gets_a_mirror_later_or_another_one(
    new: Callable[[], Machine], mirror: Path, store: Path, reference_of_machines: dict[str, bytes]
) -> None:
    machine = new()
    machine.call("run", "recipe.yaml", "merged", "--shard-size", "8kB")
    machine.call("resume", "merged", "--mirror", mirror)
    assert files_of(mirror) == reference_of_machines
    other = store / "other mirror"
    machine.call("resume", "merged", "--mirror", other)
    assert files_of(other) == files_of(mirror) == reference_of_machines


def test_the_output_may_not_be_its_own_mirror(new: Callable[[], Machine]) -> None:
    machine = new()
    for mirror in ("merged", "merged/mirror", "."):
        process = machine.begin(mirror)
        _, err = process.communicate()
        assert process.returncode == 2
        assert "contains the output" in err or "contains other files" in err
    assert not machine.out.exists()
