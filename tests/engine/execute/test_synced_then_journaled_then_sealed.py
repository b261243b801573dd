"""Promise: the ledger records nothing as durable before it is on the disk.

Recovery repairs most of what another order damages, so that a power cut shows little of it. These
tests watch the order itself, by the calls of `os` that change files.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from merging import merge, shards_of
from small_batches import use_small_batches
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.execute.work_queue import WorkQueue
from resumerge.engine.recovery.checked_shard import unit_of_row
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.errors import Resumable
from resumerge.ledger import Ledger, UnitCommit
from resumerge.ledger.units import Shards, Units
from resumerge.planning.plan import Shard

RECIPES = {
    "computed": "merge_method: linear\nmodels: [{model: base}, {model: math}]\n"
    "parameters: {weight: 0.5}\ndtype: float32\nout_dtype: bfloat16\n",
    "copied": "merge_method: passthrough\nmodels: [model: math]\n",
}

Inode = tuple[int, int]


class Watched:
    """A record of unsynced writes below a folder, which fails if the ledger claims one of them.

    Args:
        folder: a folder with the output, the ledger and nothing else.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._out, self._lock = folder, folder / "merged", threading.RLock()
        self._unsynced: dict[Inode, set[tuple[int, int]]] = defaultdict(set)
        self._synced: set[Inode] = set()
        self._renamed: set[Path] = set()
        self.batches: list[set[int]] = []
        """The shards of each batch."""
        self.sealed: list[int] = []
        for name in ("pwrite", "fsync", "fdatasync", "rename", "replace"):
            patch.setattr(os, name, getattr(self, f"_{name}")(getattr(os, name)))
        for owner, name in ((Units, "commit_batch"), (Shards, "seal"), (Ledger, "set_state")):
            patch.setattr(owner, name, getattr(self, f"_{name}")(getattr(owner, name)))

    def _wrote(self, fd: int, start: int, nbytes: int) -> None:
        with self._lock:
            self._unsynced[_inode(fd)].add((start, start + nbytes))
            self._synced.discard(_inode(fd))

    def _pwrite(self, real: Any) -> Any:
        def pwrite(fd: int, data: Any, offset: int) -> int:
            self._wrote(fd, offset, len(data))
            return int(real(fd, data, offset))

        return pwrite

    def _fsync(self, real: Any) -> Any:
        def sync(fd: int) -> None:
            inode = _inode(fd)
            with self._lock:  # what is written while it goes on may be left out
                before = set(self._unsynced[inode])
            real(fd)
            with self._lock:
                self._unsynced[inode] -= before
                if not self._unsynced[inode]:
                    self._synced.add(inode)
                self._renamed = {path for path in self._renamed if _inode(path.parent) != inode}

        return sync

    _fdatasync = _fsync

    def _rename(self, real: Any) -> Any:
        def rename(source: Any, target: Any) -> None:
            path = Path(target)
            if path.is_relative_to(self._folder):
                is_file = Path(source).is_file()
                assert not is_file or _inode(Path(source)) in self._synced, f"{path} is not synced"
                self._renamed.add(path)
            real(source, target)

        return rename

    _replace = _rename

    def _commit_batch(self, real: Any) -> Any:
        def commit(
            table: Units, attempt: int, batch: int, units: Sequence[UnitCommit], *more: Any
        ) -> None:
            rows = table.all()
            names = [shard["name"] for shard in table._db.read("shards")]
            for unit in units:
                row = rows[unit.number]
                partial = self._out / f"{names[row['shard']]}.partial"
                new = range(row["committed_blocks"], len(unit.hashes) // 16)
                blocks = [unit_of_row(row).block_span(index) for index in new]
                start, stop = blocks[0][0], sum(blocks[-1])
                with self._lock:
                    unsynced = set(self._unsynced[_inode(partial)])
                lost = [r for r in unsynced if r[0] < stop and start < r[1]]
                assert not lost, f"{row['name']} in {partial.name} is committed and not synced"
            self.batches.append({rows[unit.number]["shard"] for unit in units})
            real(table, attempt, batch, units, *more)

        return commit

    def _seal(self, real: Any) -> Any:
        def seal(shards: Shards, number: int, *mirrored: object) -> None:
            shard = shards.all()[number]
            path = self._out / shard["name"]
            assert path.stat().st_size == shard["nbytes"]
            units = shards._db.read("units")
            assert all(unit["checksum"] for unit in units if unit["shard"] == number)
            assert _inode(path) in self._synced
            assert path not in self._renamed, "the name is not durable"
            self.sealed.append(number)
            real(shards, number, *mirrored)

        return seal

    def _set_state(self, real: Any) -> Any:
        def set_state(ledger: Ledger, state: str) -> None:
            if state == "done":
                for path in (path for path in self._out.rglob("*") if path.is_file()):
                    assert _inode(path) in self._synced, path
                assert not [path for path in self._renamed if path.is_relative_to(self._out)]
            real(ledger, state)

        return set_state


def _inode(file: int | Path) -> Inode:
    found = os.stat(file)  # noqa: PTH116
    return found.st_dev, found.st_ino


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), TWO_LAYERS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches of a few blocks each."""
    use_small_batches(monkeypatch, 16384)


def units_in_turn(patch: pytest.MonkeyPatch) -> None:
    """Take units from one shard after the other, as if their files arrived in any order."""
    turn = iter(range(1 << 30))

    def writable(queue: WorkQueue) -> int | None:
        shards = [shard for shard in sorted(queue._ready) if queue._space.reserve(shard)]
        return shards[next(turn) % len(shards)] if shards else None

    patch.setattr(WorkQueue, "_reserve_shard", writable)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("in_turn", [False, True], ids=["in order", "in turn"])
def test_synced_then_journaled_then_sealed(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, in_turn: bool
) -> None:
    calm = merge(models, recipe, tmp_path / "calm", shard_size=8000)
    folder = tmp_path / "watched"
    folder.mkdir()
    if in_turn:
        units_in_turn(monkeypatch)
    watched = Watched(folder, monkeypatch)
    out = merge(models, recipe, folder / "merged", shard_size=8000, threads=2)
    shards = sorted(out.glob("*.safetensors"))
    assert len(shards) > 3
    assert sorted(watched.sealed) == list(range(len(shards)))
    assert max(map(len, watched.batches)) > 1, "of what several batches hold together"
    assert shards_of(out) == shards_of(calm)


def test_what_somebody_copied_is_synced_before_it_is_sealed(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complete shards are not sealed yet, and somebody has copied them."""
    folder, recipe = tmp_path / "watched", RECIPES["computed"]
    out = stopped_at_the_first_seal(models, recipe, folder, monkeypatch)
    for path in list(out.glob("*.partial")):
        shutil.copy(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").replace(path)
    watched = Watched(folder, monkeypatch)
    merge(models, recipe, out, shard_size=8000)
    assert len(watched.sealed) == len(list(out.glob("*.safetensors")))


def test_a_name_that_was_given_before_a_crash_is_durable_before_it_is_sealed(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, recipe = tmp_path / "watched", RECIPES["computed"]
    out = stopped_at_the_first_seal(models, recipe, folder, monkeypatch)
    watched = Watched(folder, monkeypatch)
    first = min(out.glob("*.partial"))
    with first.open("rb") as file:
        os.fsync(file.fileno())
    first.rename(first.with_suffix(""))
    merge(models, recipe, out, shard_size=8000)
    assert len(watched.sealed) == len(list(out.glob("*.safetensors")))


def stopped_at_the_first_seal(
    models: Path, recipe: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Stop a merge by a full disk when its first shard is complete, and return its output."""

    def full(files: ShardFiles, shard: Shard) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder.mkdir()
    with monkeypatch.context() as patch, pytest.raises(Resumable):
        patch.setattr(ShardFiles, "seal", full)
        merge(models, recipe, folder / "merged", shard_size=8000)
    return folder / "merged"
