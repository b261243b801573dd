"""Promise: the manifest of a finished mirror says what is there and whose it is; what else a run
left beside it is removed, and nothing of others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finished_runs import Bed
from made_up_mirrors import edited_manifest
from plain_folder import PlainFolder

from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.manifest import (
    LARGEST_MANIFEST,
    Manifest,
    is_same_model,
    missing_files,
    read_manifest,
    remove_metadata,
    write_manifest,
)
from resumerge.mirror.names import (
    LARGEST_TOKEN,
    MANIFEST_FILE,
    SnapshotName,
    TaskName,
    lease_name,
)

HASH = "0" * 64


class Removing(PlainFolder):
    """A folder that records the names of removed files, in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.removed: list[str] = []

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        super().put(files, remove)
        self.removed += remove


def manifest_of(bed: Bed) -> Manifest:
    manifest = read_manifest(PlainFolder(bed.mirror))
    assert manifest is not None
    return manifest


def test_it_says_whose_it_is_and_what_is_there(bed: Bed) -> None:
    (folder,) = RunStore(bed.state).runs()
    with closing(Ledger(folder / "ledger.db", read_only=True)) as ledger:
        run, units, attempts = ledger.run(), len(ledger.units.all()), ledger.attempts.all()
    manifest = manifest_of(bed)
    assert (manifest.run, manifest.fingerprint) == (folder.name, run["fingerprint"])
    assert (manifest.created, manifest.output) == (run["created"], "out")
    assert manifest.token == 1, "of the lease, which is gone"
    assert (manifest.seed, manifest.shard_size, manifest.units) == (0, 8000, units)
    [attempt], [told] = attempts, manifest.attempts
    assert (told["outcome"], told["started"]) == ("done", attempt["started"])
    assert told["ended"] and told["ended"] == told["last_seen"] >= told["started"]
    assert told["peak_rss"] > 1 << 20
    assert manifest.files == {
        path.relative_to(bed.out).as_posix(): (
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in bed.out.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("run", "another"),
        ("seed", 7),
        ("created", "2020-01-01T00:00:00+00:00"),
        ("units", 1),
        ("files", {}),
        ("attempts", []),
        ("output", "another"),
    ],
)
def test_one_that_was_changed_is_none(bed: Bed, key: str, other: object) -> None:
    file = bed.mirror / MANIFEST_FILE
    content = json.loads(file.read_bytes())
    file.write_text(json.dumps(content | {key: content[key]}))
    assert read_manifest(PlainFolder(bed.mirror)) is not None
    file.write_text(json.dumps(content | {key: other}))
    assert read_manifest(PlainFolder(bed.mirror)) is None


SAID: dict[str, Any] = {
    "run": "r", "fingerprint": "0", "seed": None, "shard_size": None, "units": 0, "token": 3,
    "created": "2026-01-01T00:00:00+00:00", "output": "out", "attempts": [],
    "files": {"a": {"bytes": 0, "sha256": HASH}},
}  # fmt: skip


def written(**facts: Any) -> bytes:
    """Return a manifest with these facts, without those whose value is `left out`."""
    said = {key: value for key, value in (SAID | facts).items() if value != "left out"}
    return edited_manifest(json.dumps(said | {"checksum": ""}).encode())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (written(), {"token": 3, "output": "out", "seed": None, "files": {"a": (0, HASH)}}),
        (written(token="left out"), {"token": 0}),
        (written(output="left out"), {"output": None}),
        (written(seed=5, shard_size=7), {"seed": 5, "shard_size": 7}),
        (written(token=LARGEST_TOKEN), {"token": LARGEST_TOKEN}),
        (written(output="../out"), {"output": None}),
        (written(output="/etc"), {"output": None}),
        (written(output=7), {"output": None}),
        (written().ljust(LARGEST_MANIFEST), {"token": 3}),
        (written().ljust(LARGEST_MANIFEST + 1), None),
        (written(token=-1), None),
        (written(token=LARGEST_TOKEN + 1), None),
        (written(token="3"), None),
        (written(seed="5"), None),
        (written(shard_size=7.5), None),
        (written(fingerprint="../0"), None),
        (written(run="r\n"), None),
        (written(run="r" * 101), None),
        (written(files={"a": {"bytes": 0, "sha256": "0" * 64 + "\n"}}), None),
        (written(files={"a": {"bytes": 0, "sha256": 7}}), None),
        (written(files={"a": {"bytes": "0", "sha256": HASH}}), None),
        (written(files={"a": {"bytes": 0}}), None),
        (written(units="left out"), None),
        (b"[" * 100_000, None),
        (b"[]", None),
        (b"5", None),
        (b"{}", None),
        (b"\xff", None),
    ],
    ids=range(28),
)
def test_what_no_run_can_have_written_is_none(
    tmp_path: Path, data: bytes, expected: dict[str, Any] | None
) -> None:
    store = PlainFolder(tmp_path / "mirror")
    store.put({MANIFEST_FILE: data})
    manifest = read_manifest(store)
    assert (manifest is not None) is (expected is not None)
    for name, value in (expected or {}).items():
        assert getattr(manifest, name) == value


def test_manifests_of_one_run_with_the_same_files_are_of_one_model() -> None:
    assert is_same_model(written(), written(units=9, token=8))
    assert not is_same_model(written(), written(run="another"))
    assert not is_same_model(written(), written(files={}))
    assert not is_same_model(written(), b"{}") and not is_same_model(b"{}", b"{}")


class Manifests(Removing):
    """A folder that also records the abandoned uploads."""

    def abandon_uploads(self, names: Iterable[str]) -> None:
        self.removed += [f"uploads of {name}" for name in names]


def test_a_manifest_takes_the_place_of_one_that_names_other_files_of_its_run(
    tmp_path: Path,
) -> None:
    store = Manifests(tmp_path / "mirror")
    later = TaskName(9, "shard0-1").name
    left = {TaskName(8, "shard0-1").name, lease_name(8), "a.part"}
    store.put({MANIFEST_FILE: written(files={}), **dict.fromkeys({later, *left}, b"{}")})
    write_manifest(store, written(), 8, ["a"])
    assert store.get(MANIFEST_FILE) == written()
    assert set(store.list()) == {MANIFEST_FILE, later}, "what is of a later lease stays"
    assert store.removed[0] == "uploads of a" and set(store.removed[1:]) == left


def test_a_manifest_of_another_run_is_not_replaced(tmp_path: Path) -> None:
    store = PlainFolder(tmp_path / "mirror")
    store.put({MANIFEST_FILE: written(run="another"), lease_name(1): b"{}"})
    with pytest.raises(OSError, match="the manifest of another run"):
        write_manifest(store, written(), 1, ["a"])
    assert store.get(MANIFEST_FILE) == written(run="another")
    assert lease_name(1) in store.list()
    store.put({MANIFEST_FILE: b"cut off"})
    write_manifest(store, written(), 1, ["a"])
    assert store.list().keys() == {MANIFEST_FILE} and store.get(MANIFEST_FILE) == written()


def test_a_manifest_that_another_machine_writes_at_the_same_time_stays(tmp_path: Path) -> None:
    store = PlainFolder(tmp_path / "mirror")
    store.put({lease_name(1): b"{}"})
    gets: list[None] = []

    def happens(operation: str) -> None:
        if operation == "get" and not gets:
            gets.append(None)
            (store.folder / MANIFEST_FILE).write_bytes(written(run="another"))

    store.fails = happens
    with pytest.raises(OSError, match="Another manifest was written"):
        write_manifest(store, written(), 1, ["a"])
    assert store.get(MANIFEST_FILE) == written(run="another")
    assert lease_name(1) in store.list()


def test_files_that_it_names_are_missing_where_they_are_not_or_are_other_shards(bed: Bed) -> None:
    """A shard of another size counts as missing; a card or a config may have been edited."""
    files = {
        "a.safetensors": (5, HASH),
        "folder/b.safetensors": (5, HASH),
        "config.json": (5, HASH),
    }
    manifest = replace(manifest_of(bed), files=files)
    there = {"a.safetensors": 5, "folder/b.safetensors": 5, "config.json": 7, "other": 3}
    assert missing_files(manifest, there) == []
    assert missing_files(manifest, {**there, "folder/b.safetensors": 4}) == ["folder/b.safetensors"]
    assert missing_files(manifest, {**there, "a.safetensors": 6}) == ["a.safetensors"]
    assert missing_files(manifest, {"a.safetensors": 5}) == ["config.json", "folder/b.safetensors"]


def test_what_a_run_that_was_killed_left_beside_it_is_removed(bed: Bed) -> None:
    store = Removing(bed.mirror)
    before = store.list()
    snapshots = [SnapshotName(token, 1, "0" * 32).name for token in (1, LARGEST_TOKEN)]
    leases = [lease_name(token) for token in (1, 2, LARGEST_TOKEN)]
    parts = ["config.json.part", f"{snapshots[0]}.part", f"{leases[0]}.part"]
    others = ["notes.part", ".resumerge/notes.txt", "mine/config.json.part", "config.json.kept"]
    (bed.mirror / "mine").mkdir()
    for name in [*snapshots, *leases, *parts, *others]:
        (bed.mirror / name).write_bytes(b"left")
    remove_metadata(store)
    assert store.list() == {**before, **dict.fromkeys(others, 4)}
    assert set(store.removed[-3:]) == set(leases), "they say whose the rest is"
    remove_metadata(store)
    assert len(store.removed) == 8, "nothing is written where nothing is left"


def test_without_an_intact_one_nothing_is_removed(bed: Bed) -> None:
    """The snapshots are all that there is of a run whose manifest is not intact."""
    (bed.mirror / MANIFEST_FILE).write_bytes(b"{}")
    (bed.mirror / lease_name(1)).write_bytes(b"left")
    store = Removing(bed.mirror)
    remove_metadata(store)
    assert store.removed == []
