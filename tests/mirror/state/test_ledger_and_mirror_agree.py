"""Promise: of a mirror a run adopts what it lacks itself, of its own plan alone; and a mirror is
left for another one only if nothing is lost with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_rows import change
from made_up_mirrors import put

from resumerge.engine.mirror_session.reconcile import Reconciler
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.storage import Storage

OPEN = (
    "UPDATE shards SET state = 'open' WHERE number = ?",
    "UPDATE units SET state = 'pending', committed_blocks = 0, attempt = NULL WHERE shard = ?",
)


class Run:
    """A run of this machine whose shards are all sealed, and known to its mirror."""

    def __init__(self, made: Path, there: Path, folder: Path) -> None:
        self.out, self.there = folder / "out", there
        (run,) = RunStore(made / "merged.state").runs()
        shutil.copytree(run, folder / "run")
        shutil.copytree(made / "merged", self.out)
        self.ledger = Ledger(folder / "run" / "ledger.db")
        self.shards = self.ledger.shards.sealed()
        self.ledger.set_mirror(str(there))
        for name in self.shards:
            self.ledger.mirrored.record(name, (there / name).stat().st_size, "0" * 64)
        self.sessions: list[MirrorSession] = []

    def lacks(self, number: int) -> None:
        """Undo a shard on this machine, so that it has only begun it."""
        for sql in OPEN:
            change(self.ledger.path, sql, [number])
        (self.out / self.shards[number]).rename(self.out / f"{self.shards[number]}.partial")
        self.ledger.mirrored.forget(self.shards[number])

    def free(self) -> None:
        """Delete the local shards, so that the mirror alone has them."""
        for name in self.shards:
            (self.out / name).unlink()

    def reconcile(self, mirror: Path | None = None, *, may_be_empty: bool = False) -> Reconciler:
        self.end()
        url = str(mirror or self.there)
        self.sessions.append(MirrorSession(url, Options(), Reporter(), StopRequest()))
        reconciler = Reconciler(self.ledger, self.out, self.sessions[-1], Storage())
        assert reconciler.reconcile(may_be_empty=may_be_empty) is None
        return reconciler

    def end(self) -> None:
        for session in self.sessions:
            session.release()

    def events(self, kind: str) -> list[dict[str, object]]:
        return [event["data"] for event in self.ledger.events.all(kind)]


@pytest.fixture
def run(made: Path, there: Path, tmp_path: Path) -> Iterator[Run]:
    run = Run(made, there, tmp_path)
    yield run
    run.end()
    run.ledger.close()


def test_what_this_machine_lacks_is_adopted_and_what_it_began_of_that_goes(
    run: Run, made: Path
) -> None:
    put(made, run.there)
    run.lacks(1)
    run.reconcile()
    assert [event["shard"] for event in run.events("shard_from_mirror")] == [run.shards[1]]
    assert run.ledger.shards.sealed() == run.shards
    assert run.ledger.mirrored.checksums().keys() == set(run.shards)
    assert {path.name for path in run.out.glob("model-0*")} == {
        *run.shards[:1], *run.shards[2:]
    }  # fmt: skip


def test_a_shard_that_is_sealed_there_and_not_mirrored_is_not_adopted(run: Run, made: Path) -> None:
    """The other machine was killed before it had sent the shard."""
    put(made, run.there, f"DELETE FROM mirrored WHERE name = '{run.shards[1]}'")
    run.lacks(1)
    run.reconcile()
    assert run.ledger.shards.open() == [run.shards[1]]
    assert (run.out / f"{run.shards[1]}.partial").exists()


def test_of_the_files_there_shards_alone_are_adopted(run: Run, made: Path) -> None:
    """The companions are written again at the end, whether they differ or not."""
    card = f"VALUES ('README.md', 2, '{'0' * 64}', '2026-01-01T00:00:00+00:00')"
    put(made, run.there, f"INSERT INTO mirrored {card}")
    run.lacks(1)
    run.reconcile()
    assert run.ledger.mirrored.checksums().keys() == set(run.shards)


@pytest.mark.parametrize("column", ["id", "fingerprint"])
def test_another_runs_progress_is_refused(run: Run, made: Path, column: str) -> None:
    """A run is another one if its id differs, or the fingerprint of its models and recipe."""
    own = run.ledger.run()
    assert own is not None
    other = "merged-" + "a" * 8 if column == "id" else "0" * len(own["fingerprint"])
    change(run.ledger.path, f"UPDATE run SET {column} = '{other}'")
    put(made, run.there)
    run.lacks(1)
    with pytest.raises(InputError, match="The mirror holds another run"):
        run.reconcile()
    assert run.ledger.shards.open() == [run.shards[1]]


def test_files_that_the_ledger_knows_need_no_snapshot(run: Run) -> None:
    """Somebody removed the metadata: known shards, incomplete uploads and a card are accepted."""
    change(run.ledger.path, "DELETE FROM companions")
    (run.there / f"{run.shards[0]}.part").touch()
    (run.there / "README.md").touch()
    run.reconcile()
    (run.there / "holiday.jpg").touch()
    with pytest.raises(InputError, match=r"The mirror contains other files(.|\n)*holiday\.jpg"):
        run.reconcile()


def test_files_that_look_like_the_runs_are_not_taken_for_them(run: Run) -> None:
    """The run has mirrored nothing yet, so that the shards there are not its own."""
    run.ledger.set_mirror(str(run.there))
    with pytest.raises(InputError, match="The mirror contains other files"):
        run.reconcile(may_be_empty=True)


def test_the_same_mirror_under_another_name_keeps_what_it_has(
    run: Run, made: Path, tmp_path: Path
) -> None:
    put(made, run.there)
    run.free()
    moved = run.there.rename(tmp_path / "moved")
    run.reconcile(moved, may_be_empty=True)
    own = run.ledger.run()
    assert own is not None and own["mirror"] == str(moved)
    assert run.ledger.mirrored.checksums().keys() == set(run.shards)


def test_the_same_mirror_under_another_name_has_what_is_whole_there(
    run: Run, made: Path, tmp_path: Path
) -> None:
    """A shard that was cut off or lost on the way is sent again."""
    put(made, run.there)
    moved = run.there.rename(tmp_path / "moved")
    (moved / run.shards[0]).write_bytes(b"cut off")
    (moved / run.shards[1]).unlink()
    run.reconcile(moved, may_be_empty=True)
    assert run.ledger.mirrored.checksums().keys() == set(run.shards[2:])
    assert run.ledger.shards.unmirrored() == run.shards[:2]


@pytest.mark.parametrize("is_here", [True, False])
def test_a_new_mirror_gets_everything_or_is_refused(
    run: Run, tmp_path: Path, is_here: bool
) -> None:
    """A shard that the old mirror alone has could not be sent to the new one."""
    if is_here:
        run.reconcile(tmp_path / "new", may_be_empty=True)
        assert run.ledger.mirrored.checksums() == {}
        return
    (run.out / run.shards[2]).unlink()
    with pytest.raises(InputError, match=f"1 shard, for example {run.shards[2]}"):
        run.reconcile(tmp_path / "new", may_be_empty=True)
    own = run.ledger.run()
    assert own is not None and own["mirror"] == str(run.there)


def test_only_what_is_not_here_is_compared_there(run: Run, made: Path) -> None:
    put(made, run.there)
    for name in run.shards[1:]:
        (run.out / name).unlink()
    (run.there / run.shards[0]).write_bytes(b"damaged, and here it is not")
    (run.there / run.shards[1]).unlink()
    change(run.ledger.path, "DELETE FROM mirrored")
    change(run.ledger.path, "UPDATE run SET mirror = ?", [str(run.there)])
    reconciler = run.reconcile(may_be_empty=True)
    (run.there / run.shards[2]).write_bytes(b"damaged")
    assert reconciler.compare() == run.shards[3:]
    found = {event["name"]: event["found"] for event in run.events("mirror_damaged")}
    assert found == {run.shards[1]: "missing", run.shards[2]: "different content"}
    assert run.ledger.mirrored.checksums().keys() == {run.shards[0], *run.shards[3:]}
