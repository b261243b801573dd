"""Promise: the manifest of a finished mirror says what is there and whose it is; what else a run
left beside it is removed, and nothing of others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from finished_runs import Bed
from plain_folder import PlainFolder

from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.manifest import Manifest, missing_files, read_manifest, remove_metadata
from resumerge.mirror.names import LARGEST_TOKEN, MANIFEST_FILE, SnapshotName, lease_name

HASH = "0" * 64


class Removing(PlainFolder):
    """Remembers what was removed, in order."""

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


def test_files_that_it_names_are_missing_where_they_are_not_or_are_other_shards(bed: Bed) -> None:
    """A card or a config may have been edited; a shard of another size is none."""
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
    """The snapshots are all that there is of the run."""
    (bed.mirror / MANIFEST_FILE).write_bytes(b"{}")
    (bed.mirror / lease_name(1)).write_bytes(b"left")
    store = Removing(bed.mirror)
    remove_metadata(store)
    assert store.removed == []
