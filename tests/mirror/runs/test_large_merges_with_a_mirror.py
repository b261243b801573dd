"""Promises of mirrors that only large merges show: time, memory, room on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mirror_audit
import psutil
import pytest
from ledger_rows import query
from mirrored import RECIPE
from small_disks import mounted, resize
from waiting import kill_wholly, wait_until

from resumerge.ledger import LEDGER_FILE
from resumerge.ledger.run_store import RunStore

pytestmark = pytest.mark.cold_start

SHARD = "20MB"
WATCHER = Path(__file__).with_name("watcher.py")
SUPPORT = Path(mirror_audit.__file__).parent
RATE = 100_000
ENV = {**os.environ, "COLUMNS": "200", "RESUMERGE_LEASE_SECONDS": "4"}


DEEPER = """\
merge_method: linear
slices:
  - sources: &layers
      - {model: math, layer_range: [0, 6], parameters: {weight: 0.6}}
      - {model: code, layer_range: [0, 6], parameters: {weight: 0.4}}
  - sources: *layers
dtype: float32
out_dtype: bfloat16
"""
"""All layers twice: 395 MB, of which the largest tensor has 66 MB."""


class Place:
    """A working folder with the large models, and the processes that were started in it."""

    def __init__(self, folder: Path, models: Path, recipe: str = RECIPE) -> None:
        self.folder, self.out, self.state = folder, folder / "merged", folder / "state"
        folder.mkdir()
        for model in models.iterdir():
            (folder / model.name).symlink_to(model)
        (folder / "recipe.yaml").write_text(recipe)
        self.begun: list[subprocess.Popen[str]] = []

    def start(self, *words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "resumerge", *map(str, words), "--state-dir", str(self.state)],
            cwd=self.folder,
            env=ENV,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.begun.append(process)
        return process

    def kill(self) -> None:
        for process in self.begun:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()

    def begin(self, *words: object, out: Path | None = None) -> subprocess.Popen[str]:
        return self.start("run", "recipe.yaml", out or self.out, "--shard-size", SHARD, *words)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        runs = RunStore(self.state).runs()
        if not runs:
            return []
        return query(runs[-1] / LEDGER_FILE, sql)


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a process, and return its standard error."""
    said = process.communicate()[1]
    assert process.returncode == code, said
    return said


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a model."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".resumerge" not in path.parts
    }


@pytest.fixture(scope="module")
def calm(large_llamas: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Make a merge without a mirror."""
    store = Place(tmp_path_factory.mktemp("calm") / "place", large_llamas)
    end(store.begin())
    return store


@pytest.fixture
def store(large_llamas: Path, tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "place", large_llamas)
    yield place
    place.kill()


def test_the_merge_does_not_wait_for_a_slow_mirror(
    calm: Place, store: Place, tmp_path: Path
) -> None:
    """The mirror would take minutes for the first shard: it has none until all is merged."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    watcher = subprocess.Popen(
        [sys.executable, str(WATCHER), str(mirror)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        process = store.begin("--mirror", mirror, "--mirror-rate", "100KB")
        wait_until(lambda: bytes_in(mirror), process)
        began, there = time.monotonic(), bytes_in(mirror)
        wait_until((store.out / "config.json").exists, process)
        assert hashes(store.out) == hashes(calm.out)
        moved, seconds = bytes_in(mirror) - there, time.monotonic() - began
        assert moved <= RATE * seconds + (2 << 20), "faster than it may be"
        assert not store.rows("SELECT * FROM mirrored"), "the merge has waited"
        looks = looked(watcher, lambda look: look["snapshot"])

        process.send_signal(signal.SIGTERM)
        said = end(process, 143)
        assert not store.rows("SELECT * FROM mirrored"), "it has uploaded first"
        assert said.splitlines()[-1].startswith("resumerge resume ")

        [part] = mirror.glob("*.part")
        written = part.stat().st_ino
        end(store.start("resume", "--mirror-rate", "4GB"))
        assert written in {path.stat().st_ino for path in mirror.glob("*.safetensors")}
        assert hashes(mirror) == hashes(calm.out)
        looks += looked(watcher, lambda look: look["state"] == "finished")
    finally:
        watcher.kill()
        watcher.communicate()
    assert [look["problems"] for look in looks] == [{}] * len(looks)
    files = [look["files"] for look in looks]
    assert files == sorted(files)

    sql = "SELECT max(peak_rss) AS rss, max(merging_seconds) AS seconds FROM attempts"
    alone, beside = calm.rows(sql)[0], store.rows(sql)[0]
    print(f"peak RSS {alone['rss'] / 1e6:.0f} MB without, {beside['rss'] / 1e6:.0f} MB with")
    print(f"merging {alone['seconds']:.1f} s without, {beside['seconds']:.1f} s with a mirror")
    assert beside["rss"] < alone["rss"] + 40e6
    assert store.rows("SELECT * FROM attempts WHERE outcome = 'interrupted'")


def looked(
    watcher: subprocess.Popen[str], last: Callable[[dict[str, Any]], object]
) -> list[dict[str, Any]]:
    """Return what the watcher has seen, until it sees what the test waits for."""
    assert watcher.stdout is not None
    looks: list[dict[str, Any]] = []
    while not looks or not last(looks[-1]):
        line = watcher.stdout.readline()
        assert line, looks
        looks.append(json.loads(line))
    return looks


def bytes_in(folder: Path) -> int:
    """Return the bytes of all shards in a folder, complete or not."""
    found = 0
    for path in (*folder.glob("*.safetensors"), *folder.glob("*.part")):
        try:
            found += path.stat().st_size
        except FileNotFoundError:  # renamed since
            found += path.with_suffix("").stat().st_size
    return found


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a disk with a third of the room for the output, and one whose room the test sets."""
    here, there = tmp_path / "small disk", tmp_path / "mirror"
    here.mkdir()
    there.mkdir()
    with mounted(here, 130_000_000), mounted(there, 1_000_000):
        yield here, there


def test_an_output_three_times_as_large_as_the_disk(
    large_llamas: Path, store: Place, small_disks: tuple[Path, Path], tmp_path: Path
) -> None:
    """The mirror has room for three shards, then for six, so that the merge waits for the kill.

    The last shard has one small tensor: it may be merged and mirrored while others wait for space.
    """
    calm = Place(tmp_path / "calm", large_llamas, DEEPER)
    end(calm.begin())
    (store.folder / "recipe.yaml").write_text(DEEPER)
    small_disk, mirror = small_disks
    out = small_disk / "out"
    assert bytes_in(calm.out) > 3 * shutil.disk_usage(small_disk).free
    sizes = [path.stat().st_size for path in sorted(calm.out.glob("*.safetensors"))]
    words = ["--mirror", mirror]
    assert "too small for the output" in end(store.begin(*words, out=out), 2)

    def room_for(shards: int) -> int:
        return sum(sizes[:shards]) + sizes[shards] // 2

    away = "SELECT * FROM mirrored"
    resize(mirror, room_for(3))
    process = store.begin(*words, "--mirror-then-delete", out=out)
    wait_until(lambda: len(store.rows(away)) >= 3, process)
    (worker,) = psutil.Process(process.pid).children()
    worker.kill()  # as the kernel does; its supervisor goes on
    resize(mirror, room_for(6))
    wait_until(lambda: len(store.rows(away)) >= 6, process)
    # A worker that still dies holds the lease, and the next process would be refused.
    kill_wholly([process.pid, *(child.pid for child in psutil.Process(process.pid).children())])
    process.wait()
    resize(mirror, 1 << 30)
    said = end(store.start("resume"))
    assert "shard_lost" not in said
    expected = hashes(calm.out)
    expected.pop("README.md"), (found := hashes(mirror)).pop("README.md")  # it names the folder
    assert found == expected
    assert not [*out.glob("*.safetensors"), *out.glob("*.partial")]
    assert not (out / "config.json").exists(), "no loader shall take it for a model"
    kinds = {row["kind"] for row in store.rows("SELECT kind FROM events")}
    assert "worker_killed" in kinds and "shard_lost" not in kinds
    redone = store.rows("SELECT sum(bytes_committed) AS n FROM attempts")[0]["n"]
    total = store.rows("SELECT sum(nbytes) AS n FROM units")[0]["n"]
    assert redone == total, "what was committed was computed again"
