"""Promise: whatever the order of two or three machines' requests to one mirror, and whatever goes
wrong with them, the mirror is consistent at every instant, no machine undoes what its successor
did, and nothing is left over when one of them has finished.

`any_order` has the rules, `promise` what has to hold. That the rules find faults is shown by faults
that are planted into the program. To see a failure shortened, add `Phase.shrink` to the phases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from any_order import PATIENCE, AnyOrder
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from memory_s3 import Server
from mirrored_run import Made, Mirrored, virtual
from promise import Broken, Promise
from shared_stores import KINDS, Shared, SharedBucket, digest, share
from store_conformance import (
    CHECKS,
    Check,
    Place,
    its_address_opens_it_again,
)
from virtual_machines import Machine, Process, World

from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.mirror import lease, mirror_writer
from resumerge.mirror.lease import Lease
from resumerge.mirror.lease_record import read_lease
from resumerge.mirror.manifest import remove_metadata
from resumerge.mirror.mirror_writer import MirrorWriter
from resumerge.mirror.names import MANIFEST_FILE, SnapshotName, lease_name, snapshot_names
from resumerge.mirror.replicator import Replicator
from resumerge.mirror.snapshots import write_snapshot
from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.buckets.store import BucketStore

REQUESTS, SOAKED_REQUESTS = 2_000, 100_000
EXAMPLES, STEPS = 15, 60


@pytest.fixture(scope="module")
def played(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make a run of five shards that can be played."""
    (run,) = RunStore(made / "merged.state").runs()
    return Made.of(run / "ledger.db", made / "merged", tmp_path_factory.mktemp("played"))


@pytest.fixture
def machine(played: Made) -> type[AnyOrder]:
    class OfThisRun(AnyOrder):
        made = played
        total: ClassVar[Counter[str]] = Counter()

    return OfThisRun


def play(machine: type[AnyOrder], number: int, examples: int = EXAMPLES) -> None:
    """Play some examples, which depend on the number alone."""
    how = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    run_state_machine_as_test(seed(number)(machine), settings=how)


def test_every_promise_holds(machine: type[AnyOrder], soak: bool) -> None:
    number, requests = 0, SOAKED_REQUESTS if soak else REQUESTS
    while machine.total["requests"] < requests or number < len(KINDS):
        machine.kinds = (KINDS[number % len(KINDS)],)
        play(machine, number)
        number += 1
    print(dict(machine.total))


# Faults that are planted


def no_check(patch: pytest.MonkeyPatch) -> None:
    """Let a machine write without a check that it still owns the mirror."""
    patch.setattr(Lease, "check", lambda lease: None)


def named_too_early(patch: pytest.MonkeyPatch) -> None:
    """Record a shard, and name it in a snapshot, before it is uploaded and compared."""
    upload = MirrorWriter.upload

    def early(self: MirrorWriter, name: str) -> None:
        data = (self._out / name).read_bytes()
        self._ledger.mirrored.record(name, len(data), digest(data))
        self.write_snapshot()
        upload(self, name)

    patch.setattr(MirrorWriter, "upload", early)


def older_ones_go_first(patch: pytest.MonkeyPatch) -> None:
    """Remove older snapshots before the newer one is written."""

    def write(store: Store, ledger: Ledger, token: int, before: list[SnapshotName]) -> SnapshotName:
        store.put({}, [old.name for old in before if old.token <= token])
        return write_snapshot(store, ledger, token, before)

    patch.setattr(mirror_writer, "write_snapshot", write)


def newer_ones_go_too(patch: pytest.MonkeyPatch) -> None:
    """Let a machine remove the snapshots of its successors."""

    def write(store: Store, ledger: Ledger, token: int, before: list[SnapshotName]) -> SnapshotName:
        written = write_snapshot(store, ledger, token, before)
        others = [found.name for found in snapshot_names(store.list()) if found != written]
        store.put({}, others)
        return written

    patch.setattr(mirror_writer, "write_snapshot", write)


def tokens_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Let a machine overlook a higher fencing token."""

    def blind(self: Lease, *, released: bool = False) -> None:
        began, name = lease.clock(), lease_name(self.token)
        found = read_lease(self._store, {name: 0})
        self._record = self._record.renewed(released=released)
        if found is not None:
            self._store.put_if_unchanged(name, self._record.as_bytes(), found.raw)
            self._renewed_at = began

    patch.setattr(Lease, "_renew", blind)
    patch.setattr(Lease, "check_listed", lambda lease, files: None)


def nobody_is_watched(patch: pytest.MonkeyPatch) -> None:
    """Acquire a lease without watching whether its owner renews it."""
    patch.setattr(lease, "_wait_until_free", lambda *given: None)


def a_refusal_is_taken_for_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    """Count a refused conditional write as done, whoever wrote the present content."""
    patch.setattr(BucketStore, "_holds", lambda store, name, data: True)


def deleted_when_uploaded(patch: pytest.MonkeyPatch) -> None:
    """Delete a local shard when it is uploaded, before a snapshot names it."""
    next_operation = Replicator._next

    def early(self: Replicator) -> Callable[[], None]:
        operation = next_operation(self)

        def and_delete() -> None:
            operation()
            if self.options.then_delete:
                for name in self._ledger.mirrored.checksums():
                    self._writer._storage.remove(self._writer._out / name)

        return and_delete

    patch.setattr(Replicator, "_next", early)


def manifests_are_written_again(patch: pytest.MonkeyPatch) -> None:
    """Replace the manifest of the machine that finished first."""

    def write(store: Store, manifest: bytes, token: int, files: Iterable[str]) -> None:
        before = store.get(MANIFEST_FILE) if MANIFEST_FILE in store.list() else None
        store.put_if_unchanged(MANIFEST_FILE, manifest, before)
        remove_metadata(store, token)

    patch.setattr(mirror_writer, "write_manifest", write)


PLANTS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    no_check: 0,
    named_too_early: 0,
    older_ones_go_first: 0,
    newer_ones_go_too: 0,
    tokens_are_not_compared: 0,
    nobody_is_watched: 2,
    a_refusal_is_taken_for_a_lost_answer: 4,
    deleted_when_uploaded: 0,
    manifests_are_written_again: 0,
}
"""The faults, and the first seed that is tried for each: lower ones find nothing."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_fault_that_is_planted_is_found(
    machine: type[AnyOrder],
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    machine.kinds = ("bucket",)
    with pytest.raises(Broken) as found:
        for number in range(PLANTS[plant], 40):
            machine.total["seed"] = number
            play(machine, number)
    print(str(found.value).splitlines()[-1], dict(machine.total))


# One order, of a finished mirror that is opened again


@dataclass
class Played:
    """A bucket, and the machines that use it, which the test lets go on."""

    world: World
    store: Shared
    promise: Promise
    run: Mirrored
    folder: Path

    def machine(self, name: str) -> Machine:
        (self.folder / name).mkdir()
        return Machine(name, self.folder / name)

    def start(self, machine: Machine) -> Process:
        self.world.now += 200.0  # the lease of whoever was killed has expired
        return self.world.start(machine, self.run.work)

    def let(self, process: Process, until: Callable[[], bool]) -> None:
        """Let a process go on until something is true, or it ends."""
        for _ in range(PATIENCE):
            if until() or not process.alive:
                return
            tasks = [task for task in process.tasks if task.can_go_on()]
            for task in tasks:
                if task.can_go_on() and not until():
                    task.go_on()
                    self.promise.check()
            self.world.now += 0.01 if tasks else 1.0
        raise AssertionError("it does not end")

    def finish(self, machine: Machine) -> Process:
        process = self.start(machine)
        self.let(process, lambda: False)
        assert process.outcome == "done", self.world.log[-20:]
        return process

    def killed_while_a_snapshot_is_under_way(
        self, machine: Machine, patch: pytest.MonkeyPatch
    ) -> None:
        """Start a machine, and kill it while a snapshot after its first one is late."""
        process = self.start(machine)
        self.let(process, lambda: bool(self.snapshots() and self.snapshots()[0].token > 1))
        request = self.world.request

        def late(what: str, do: Callable[[], Any], *, changes: Any = (), **facts: Any) -> Any:
            if what.startswith("put") and "/ledger-" in what:
                process.fault = "late"
            return request(what, do, changes=changes, **facts)

        with patch.context() as changed:
            changed.setattr(self.world, "request", late)
            self.let(process, lambda: bool(self.world.late))
        assert "/ledger-" in str(self.world.late)
        self.world.kill(process)

    def snapshots(self) -> list[SnapshotName]:
        return snapshot_names(self.store.names())

    def is_open(self) -> bool:
        return MANIFEST_FILE not in self.store.names()


@pytest.fixture
def place(played: Made, tmp_path: Path) -> Iterator[Played]:
    world = World()
    store = share("bucket", world, tmp_path)
    promise = Promise(world, store, played.model)
    promise.watch()
    run = Mirrored(played, world, store, promise)
    with virtual(world, store, promise):
        yield Played(world, store, promise, run, tmp_path)
        for process in world.processes:
            if process.alive:
                world.kill(process)


def test_what_was_sent_before_the_end_does_not_fence_off_who_opens_the_mirror_again(
    place: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead machine's late snapshot arrives after a finished mirror was opened again."""
    first = place.start(place.machine("first"))
    place.let(first, lambda: bool(place.snapshots()))
    place.world.kill(first)
    place.killed_while_a_snapshot_is_under_way(place.machine("second"), monkeypatch)
    third = place.machine("third")
    place.finish(third)
    place.promise.harm(min(name for name in place.run.made.shards), None)
    again = place.start(third)
    place.let(again, place.is_open)
    assert place.is_open() and [found.token for found in place.snapshots()] == [4]
    place.world.land()
    assert [found.token for found in place.snapshots()] == [4, 2], "the newest is ours"
    place.let(again, lambda: False)
    assert again.outcome == "done"
    place.promise.nothing_is_left_over()


# The stores that it is played on are stores


@pytest.fixture
def world() -> Iterator[World]:
    yield World()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_stores_keep_their_contract(
    kind: str, check: Check, world: World, tmp_path: Path
) -> None:
    if check is its_address_opens_it_again and kind != "bucket":
        pytest.skip("an address opens the store of the program")
    shared = share(kind, world, tmp_path)
    (tmp_path / "local").mkdir()
    check(Place(shared.open, tmp_path / "local"))


def test_a_server_that_ignores_conditions_says_so(world: World) -> None:
    assert "If-None-Match" in SharedBucket(world, conditional=False).open().lease_obstacle()
    assert SharedBucket(world).open().lease_obstacle() == ""
    assert Server().objects == {}
