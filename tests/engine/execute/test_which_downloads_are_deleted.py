"""Promise: with --evict a download of the run is deleted after its last use, and no other file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import plan, tensor, vectors

from resumerge.engine.execute.eviction import DownloadEvictor
from resumerge.ledger import Progress
from resumerge.planning import Plan
from resumerge.sources.remote.files import remote_file
from resumerge.sources.types import Source, SourceFile

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: o/a}, {model: o/b}]\n"
PENDING = Progress(
    committed_blocks=0, hashes=b"", input_hashes=b"", checksum=None, attempt=None, batch=None
)
DONE = replace(PENDING, checksum="known")


def remote(name: str, *files: str, etags: dict[str, str] | None = None) -> Source:
    """Return a model of the Hub with a tensor for each of these file names, in that file."""
    tensors = {
        f"t{number}": replace(tensor(f"t{number}", (5,)), file=file)
        for number, file in enumerate(files)
    }
    source = replace(vectors(name, *[5] * len(files)), kind="hub", revision="c" * 40)
    known = {
        file: SourceFile(file, 20, {"etag": (etags or {}).get(file, f"of {file}")}, present=False)
        for file in files
    }
    return replace(source, tensors=tensors, files=known)


def relative(blob: Path, link: Path) -> str:
    """Return the target of a link in the Hub's cache."""
    return os.path.relpath(blob, link.parent)


class Bench:
    """A cache that has every file of a plan, each downloaded by the run unless a test says so."""

    def __init__(self, found: Plan, *done: int, evict: bool = True) -> None:
        self.found = found
        self.told: list[tuple[str, Any]] = []
        self.downloads: dict[str, int] = {}
        self.files = {
            (number, name): remote_file(source, name)
            for number, source in enumerate(found.sources)
            for name in source.files
        }
        for (number, name), file in self.files.items():
            file.blob.parent.mkdir(parents=True, exist_ok=True)
            if not file.blob.exists():
                file.blob.write_bytes(bytes(20))
            link = found.sources[number].path(name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(relative(file.blob, link))
            self.downloads[str(file.blob)] = file.blob.stat().st_ino
        downloads = SimpleNamespace(
            inodes=lambda: dict(self.downloads),
            evict=self.download_evicted,
            record=lambda *facts: self.told.append(("noted", facts)),
        )
        ledger: Any = SimpleNamespace(downloads=downloads)
        metadata: Any = SimpleNamespace(
            forget_verdict=lambda blob: self.told.append(("no verdict", blob))
        )
        reader: Any = SimpleNamespace(release=lambda *file: self.told.append(("closed", file)))
        progress = [DONE if unit.number in done else PENDING for unit in found.units]
        self.evictor = DownloadEvictor(found, ledger, metadata, reader, progress, evict=evict)

    def download_evicted(self, path: str, name: str, nbytes: int) -> None:
        del self.downloads[path]
        self.told.append(("download_evicted", {"file": name, "bytes": nbytes}))

    def link(self, model: int, name: str) -> Path:
        return self.found.sources[model].path(name)

    def left(self) -> list[tuple[int, str]]:
        """Return the files whose content exists, and check that these and no others have links."""
        for (number, name), file in self.files.items():
            assert self.link(number, name).is_symlink() == file.blob.exists(), name
        return sorted(place for place, file in self.files.items() if file.blob.exists())


Made = Callable[..., Source]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def make(name: str, *files: str, **more: Any) -> Source:
        source = remote(name, *files, **more)
        repo = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        return replace(source, folder=repo / "snapshots" / ("c" * 40))

    return make


def test_a_file_goes_with_the_last_tensor_that_reads_it(made: Made) -> None:
    bench = Bench(plan(RECIPE, made("o/a", "x", "x", "y"), made("o/b", "x", "y", "y")))
    bench.evictor.evict_unneeded()
    every = [(0, "x"), (0, "y"), (1, "x"), (1, "y")]
    assert bench.left() == every and bench.told == []
    bench.evictor.committed([0])
    assert bench.left() == [(0, "x"), (0, "y"), (1, "y")]
    blob = bench.files[1, "x"].blob
    assert bench.told == [
        ("closed", (1, "x")),
        ("no verdict", blob),
        ("download_evicted", {"file": "x", "bytes": 20}),
    ]
    assert str(blob) not in bench.downloads, "the next attempt does not look for it"
    bench.evictor.committed([])
    bench.evictor.committed([2])
    assert bench.left() == [(0, "x"), (1, "y")]
    bench.evictor.committed([1])
    assert bench.left() == [] and bench.downloads == {}


def test_what_only_committed_tensors_read_goes_at_the_beginning(made: Made) -> None:
    """An earlier attempt was killed before it deleted the file."""
    bench = Bench(plan(RECIPE, made("o/a", "x", "y"), made("o/b", "x", "x")), 0)
    bench.evictor.evict_unneeded()
    assert bench.left() == [(0, "y"), (1, "x")]
    bench.evictor.committed([1])
    assert bench.left() == []


def test_what_an_attempt_deleted_before_it_was_killed_is_told_by_the_next(made: Made) -> None:
    bench = Bench(plan(RECIPE, made("o/a", "x"), made("o/b", "x")), 0)
    for file in bench.files.values():
        file.pointer.unlink()
    blob = bench.files[0, "x"].blob
    blob.unlink()
    bench.link(1, "x").write_bytes(b"of whoever has no links")
    bench.files[1, "x"].blob.unlink()
    bench.evictor.evict_unneeded()
    assert bench.told == [("download_evicted", {"file": "x", "bytes": 20})]
    assert list(bench.downloads) == [str(bench.files[1, "x"].blob)]
    assert bench.link(1, "x").exists()


def test_without_the_option_all_stay(made: Made) -> None:
    bench = Bench(plan(RECIPE, made("o/a", "x"), made("o/b", "x")), evict=False)
    bench.evictor.evict_unneeded()
    bench.evictor.committed([0])
    assert bench.left() == [(0, "x"), (1, "x")] and bench.told == []


def test_what_the_run_did_not_download_stays(made: Made) -> None:
    bench = Bench(plan(RECIPE, made("o/a", "x"), made("o/b", "x")))
    del bench.downloads[str(bench.files[0, "x"].blob)]
    blob = bench.files[1, "x"].blob
    another = blob.with_name("another")
    another.write_bytes(blob.read_bytes())
    another.replace(blob)
    bench.evictor.committed([0])
    assert bench.left() == [(0, "x"), (1, "x")] and bench.told == []


def test_what_is_gone_already_is_no_hindrance(made: Made) -> None:
    bench = Bench(plan(RECIPE, made("o/a", "x"), made("o/b", "x")))
    bench.files[0, "x"].blob.unlink()
    bench.link(1, "x").unlink()
    bench.evictor.committed([0])
    assert not bench.files[1, "x"].blob.exists()


def test_one_content_under_two_names_goes_after_the_last_of_both(made: Made) -> None:
    same = {"x": "same", "y": "same"}
    bench = Bench(plan(RECIPE, made("o/a", "x", "y", etags=same), made("o/b", "z", "w")))
    bench.evictor.committed([0])
    assert bench.left() == [(0, "x"), (0, "y"), (1, "w")]
    bench.told.clear()
    bench.evictor.committed([1])
    assert bench.left() == []
    closed = [place for kind, place in bench.told if kind == "closed"]
    assert sorted(closed) == [(0, "x"), (0, "y"), (1, "w")]
    assert [facts["file"] for kind, facts in bench.told if kind == "download_evicted"] in (
        ["x", "w"], ["w", "x"]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["x", "sub/folder/x"])
def test_a_content_that_another_snapshot_has_stays(made: Made, name: str) -> None:
    """Another program uses the other snapshot, whatever the file's folder in it is."""
    bench = Bench(plan(RECIPE, made("o/a", name), made("o/b", "x")))
    blob = bench.files[0, name].blob
    other = blob.parent.parent / "snapshots" / ("d" * 40) / name
    other.parent.mkdir(parents=True)
    other.symlink_to(relative(blob, other))
    foreign = other.with_name("y")
    foreign.symlink_to(other.with_name("of another content"))
    bench.evictor.committed([0])
    assert bench.left() == [(0, name)]
    other.unlink()
    bench.evictor.evict_unneeded()
    assert bench.left() == [], "links to other contents do not count"
    assert foreign.is_symlink()


def test_a_second_name_in_the_same_snapshot_is_no_name_of_the_run(made: Made) -> None:
    """The merge does not read the second name, but another program may."""
    bench = Bench(plan(RECIPE, made("o/a", "x"), made("o/b", "x")))
    second = bench.link(0, "x").with_name("second")
    second.symlink_to(relative(bench.files[0, "x"].blob, second))
    bench.evictor.committed([0])
    assert bench.left() == [(0, "x")]
    assert second.read_bytes() == bytes(20)


def test_a_download_is_noted_with_the_inode_that_it_will_have(made: Made) -> None:
    bench = Bench(plan(RECIPE, made("o/a", "x"), made("o/b", "x")))
    file = bench.files[0, "x"]
    bench.evictor.started(file, 77)
    assert bench.told == [("noted", (str(file.blob), "o/a", "x", 20, 77))]
