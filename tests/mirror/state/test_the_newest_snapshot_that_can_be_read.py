"""Promise: a mirror is read from its newest intact snapshot; if one vanishes, from the next."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import xxhash
from finished_runs import Bed
from ledger_rows import query
from made_up_mirrors import put, put_bytes
from mirror_audit import check_mirror
from opened_snapshots import newest_snapshot, open_snapshot
from plain_folder import PlainFolder

from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.names import (
    LARGEST_TOKEN,
    SnapshotName,
    TaskName,
    fencing_tokens,
    lease_name,
    leases,
    metadata_in,
    snapshot_names,
    task_names,
)
from resumerge.mirror.snapshots import (
    is_intact_snapshot,
    promises_nothing,
    write_snapshot,
)
from resumerge.mirror.state import DAMAGED, FINISHED, FOREIGN, NOTHING, UNFINISHED, read_state
from resumerge.mirror.stores.folder import FolderStore

INTACT = xxhash.xxh3_128_hexdigest(b"")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "imported.db"


def vanishing(folder: Path, *names: str) -> PlainFolder:
    """Return a store that lists these snapshots, which are gone when they are read."""
    gone = list(names)
    store = PlainFolder(folder)

    def happens(operation: str) -> None:
        if operation == "get" and gone:
            (folder / gone.pop(0)).unlink()

    store.fails = happens
    return store


def snapshots(made: Path, there: Path, count: int) -> list[str]:
    """Put some snapshots into a mirror, and return their names, oldest first."""
    hosts = (f"UPDATE run SET host = 'host {number}'" for number in range(1, count + 1))
    paths = [put(made, there, edit, number=number) for number, edit in enumerate(hosts, 1)]
    return [f".resumerge/{path.name}" for path in paths]


def test_the_newest_is_read(made: Path, there: Path, ledger: Path) -> None:
    names = snapshots(made, there, 3)
    operations: list[str] = []
    state = read_state(PlainFolder(there, operations.append), ledger)
    assert (state.kind, state.snapshot, state.skipped) == (UNFINISHED, names[-1], ())
    assert operations == ["list", "get"]
    assert query(ledger, "SELECT host FROM run") == [{"host": "host 3"}]
    found = newest_snapshot(PlainFolder(there), names)
    assert found is not None and found[0].name == names[-1]
    assert found[1] == (there / names[-1]).read_bytes()


@pytest.mark.parametrize("gone", [1, 2])
def test_one_that_vanishes_is_followed_by_the_next(
    made: Path, there: Path, ledger: Path, gone: int
) -> None:
    names = snapshots(made, there, 3)
    vanish = names[: -gone - 1 : -1]
    kept = there.with_name("kept")
    shutil.copytree(there, kept)
    state = read_state(vanishing(there, *vanish), ledger)
    assert (state.kind, state.snapshot, state.skipped) == (UNFINISHED, names[-gone - 1], ())
    found = newest_snapshot(vanishing(kept, *vanish), names)
    assert found is not None and found[0].name == names[-gone - 1]


def test_where_all_have_vanished_the_mirror_is_listed_again(
    made: Path, there: Path, ledger: Path
) -> None:
    """A machine that writes has replaced the snapshots by newer ones."""
    names = snapshots(made, there, 1)
    newer = SnapshotName(2, 7, names[0][-35:-3]).name
    store = PlainFolder(there)

    def happens(operation: str) -> None:
        if operation == "get" and (there / names[0]).exists():
            (there / names[0]).rename(there / newer)

    store.fails = happens
    assert read_state(store, ledger).snapshot == newer
    (there / newer).rename(there / names[0])
    assert check_mirror(store).snapshot == snapshot_names([newer])[0]


def test_a_mirror_whose_snapshots_keep_vanishing_is_not_waited_for(
    made: Path, there: Path, ledger: Path
) -> None:
    class Flickering(PlainFolder):
        lists = 0

        def list(self) -> dict[str, int]:
            self.lists += 1
            return {f".resumerge/ledger-000001-000001-{INTACT}.db": 5}

    store = Flickering(there)
    assert read_state(store, ledger).kind == NOTHING
    assert store.lists == 3


def test_a_damaged_one_is_skipped_and_named(made: Path, there: Path, ledger: Path) -> None:
    names = snapshots(made, there, 2)
    (there / names[1]).write_bytes(b"damaged")
    state = read_state(PlainFolder(there), ledger)
    assert (state.kind, state.snapshot) == (UNFINISHED, names[0])
    assert state.skipped == (f"{names[1]}: incomplete or damaged",)
    found = newest_snapshot(PlainFolder(there), names)
    assert found is not None and found[0].name == names[0]
    assert newest_snapshot(PlainFolder(there), [names[1]]) is None


def empty(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()


def foreign(folder: Path) -> None:
    empty(folder)
    (folder / "holiday.jpg").write_bytes(b"a picture")


def backups_alone(folder: Path) -> None:
    empty(folder)
    (folder / "config.json.kept").write_bytes(b"{}")
    (folder / ".resumerge" / "notes.txt").write_bytes(b"mine")


def damaged_first(folder: Path) -> None:
    empty(folder)
    put_damaged(folder, 1)


def damaged_second(folder: Path) -> None:
    empty(folder)
    put_damaged(folder, 2)


def damaged_with_shards(folder: Path) -> None:
    put_damaged(folder, 1)


def damaged_with_a_card(folder: Path) -> None:
    empty(folder)
    put_damaged(folder, 1)
    (folder / "README.md").write_bytes(b"# mine")


def no_manifest(folder: Path) -> None:
    empty(folder)
    (folder / ".resumerge" / "done.json").write_bytes(b"{}")


def too_large_a_manifest(folder: Path) -> None:
    empty(folder)
    with (folder / ".resumerge" / "done.json").open("wb") as file:
        file.truncate(1 << 40)


def put_damaged(folder: Path, number: int) -> None:
    snapshot = put_bytes(folder, b"whole", number)
    snapshot.write_bytes(b"who")


@pytest.mark.parametrize(
    ("put_there", "kind", "skipped"),
    [
        (empty, NOTHING, 0),
        (foreign, FOREIGN, 0),
        (backups_alone, NOTHING, 0),
        (damaged_first, NOTHING, 1),
        (damaged_second, DAMAGED, 1),
        (damaged_with_shards, DAMAGED, 1),
        (damaged_with_a_card, FOREIGN, 0),
        (no_manifest, NOTHING, 0),
        (too_large_a_manifest, NOTHING, 0),
        (lambda folder: None, FOREIGN, 0),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_a_mirror_without_a_snapshot_holds(
    there: Path, ledger: Path, put_there: Callable[[Path], None], kind: str, skipped: int
) -> None:
    put_there(there)
    state = read_state(FolderStore(there), ledger)
    assert (state.kind, len(state.skipped), state.manifest) == (kind, skipped, None)
    assert not ledger.exists()
    audit = check_mirror(FolderStore(there))
    assert audit.consistent is (kind != DAMAGED)
    assert audit.state == "empty"


def test_files_that_the_store_makes_itself_are_nobodys(there: Path, ledger: Path) -> None:
    class Attributed(PlainFolder):
        own_files = frozenset({".gitattributes"})

    empty(there)
    (there / ".gitattributes").write_bytes(b"*.bin filter=lfs\n")
    state = read_state(Attributed(there), ledger)
    assert (state.kind, state.others) == (NOTHING, [])
    assert read_state(PlainFolder(there), ledger).kind == FOREIGN
    put_damaged(there, 1)
    assert read_state(Attributed(there), ledger).kind == NOTHING, "its first snapshot was cut off"
    assert read_state(PlainFolder(there), ledger).kind == DAMAGED


def test_a_damaged_one_is_named_once_though_the_mirror_is_listed_again(
    made: Path, there: Path, ledger: Path
) -> None:
    [oldest, newest] = snapshots(made, there, 2)
    (there / newest).write_bytes(b"damaged")
    store, read = PlainFolder(there), iter((newest, oldest))

    def happens(operation: str) -> None:
        if operation == "get" and next(read, None) == oldest:
            (there / oldest).unlink()

    store.fails = happens
    state = read_state(store, ledger)
    assert (state.kind, state.skipped) == (DAMAGED, (f"{newest}: incomplete or damaged",))


def test_a_finished_one_needs_no_snapshot(bed: Bed, ledger: Path) -> None:
    state = read_state(PlainFolder(bed.mirror), ledger)
    assert state.kind == FINISHED and state.manifest is not None and not state.snapshot
    assert state.others == sorted(state.manifest.files)


def test_names_of_metadata() -> None:
    older, newer, newest = (SnapshotName(*name, INTACT) for name in ((2, 9), (2, 10), (1000000, 1)))
    names = [newest.name, older.name, newer.name]
    others = [
        "lease-000001.json",
        ".resumerge/lease-00001.json",
        ".resumerge/ledger-000001-000001-abc.db",
        f"{older.name}.part",
        f"x{older.name}",
        ".resumerge/lease-000004.json.part",
    ]
    assert snapshot_names([*names, *others]) == [newest, newer, older]
    assert sorted(fencing_tokens([*names, *others])) == [1, 2, 2, 2, 4, 1000000]
    own = {*names, f"{older.name}.part", ".resumerge/lease-000004.json.part"}
    assert metadata_in([*names, *others]) == own


def test_metadata_is_what_a_run_may_have_left() -> None:
    """A finished run removes all metadata; a file whose name no run writes is somebody's."""
    task = TaskName(12, "shard3-45")
    assert (task.name, task.shard) == (".resumerge/task-000012-shard3-45.json", 3)
    mine = [
        ".resumerge/done.json",
        SnapshotName(123456789, 10**17, INTACT).name,
        lease_name(LARGEST_TOKEN),
        task.name,
        ".resumerge/probe-0123abcd-2",
        ".resumerge/clock-0123abcd",
    ]
    mine += [f"{name}.part" for name in mine]
    others = [
        "done.json",
        ".resumerge/notes.txt",
        ".resumerge/done.json.kept",
        ".resumerge/done.json.part.part",
        ".resumerge/task-000012-shard3.json",
        ".resumerge/task-000012-shard3-45-6.json",
        ".resumerge/probe-0123abcd",
        ".resumerge/clock-0123",
        f"folder/{lease_name(1)}",
    ]
    assert metadata_in([*mine, *others]) == set(mine)
    tasks = [TaskName(3, "shard1-1"), task, TaskName(1000000, "shard999999-1")]
    assert task_names([*mine, *others, tasks[2].name, tasks[0].name]) == tasks
    assert snapshot_names(mine) == [SnapshotName(123456789, 10**17, INTACT)]
    assert leases(mine) == {LARGEST_TOKEN: lease_name(LARGEST_TOKEN)}


def test_names_of_leases() -> None:
    names = [lease_name(7), lease_name(1234567), "lease-000001.json", f"{lease_name(8)}.part"]
    assert lease_name(7) == ".resumerge/lease-000007.json"
    assert leases(names) == {7: names[0], 1234567: names[1]}


def test_a_snapshot_is_the_next_of_its_token_and_replaces_older_ones_alone(
    made: Path, tmp_path: Path
) -> None:
    (run,) = RunStore(made / "merged.state").runs()
    shutil.copytree(run, tmp_path / "run")
    store = PlainFolder(tmp_path / "mirror")
    before = [SnapshotName(*name, INTACT) for name in ((1, 9), (2, 3), (2, 4), (3, 1))]
    store.put({snapshot.name: b"" for snapshot in before})
    with closing(Ledger(tmp_path / "run" / "ledger.db")) as ledger:
        written = write_snapshot(store, ledger, 2, before)
        assert (written.token, written.number) == (2, 5)
        assert snapshot_names(store.list()) == [before[-1], written]
        first = write_snapshot(store, ledger, 4, before)
        assert (first.token, first.number) == (4, 1)
    data = store.get(written.name)
    assert is_intact_snapshot(written, data)
    with open_snapshot(data) as copy:
        assert copy.run() == ledger_run(tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"ledger.db"}
    assert not list((tmp_path / "run").glob("ledger.mirror*"))


def ledger_run(folder: Path) -> dict[str, object]:
    return query(folder / "ledger.db", "SELECT * FROM run")[0]


def test_a_name_promises_bytes() -> None:
    assert is_intact_snapshot(SnapshotName(1, 1, INTACT), b"")
    assert not is_intact_snapshot(SnapshotName(1, 1, INTACT), b"x")


def test_only_first_snapshots_beside_nothing_promise_nothing() -> None:
    first, second = (SnapshotName(1, number, INTACT).name for number in (1, 2))
    assert promises_nothing([first, "README.md", ".gitattributes"], {".gitattributes"})
    assert not promises_nothing([first, ".gitattributes"], set())
    assert not promises_nothing([first, second], set())
    assert promises_nothing([first, SnapshotName(2, 1, INTACT).name], set())
