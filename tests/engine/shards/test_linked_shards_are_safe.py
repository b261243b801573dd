"""Promise: with --link a copied shard is a hard link to its weight file, which never changes."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from merging import Told, merge, shards_of, working_in
from models_in_files import COPY, SIX_LAYERS, write_adapter, write_in_files
from small_batches import use_small_batches

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Reason, Resumable
from resumerge.options import Options
from resumerge.storage import Storage

LINKED = "model-00002-of-00008.safetensors"
TOUCHED = "model-00003-of-00008.safetensors"
LARGER = {**SIX_LAYERS, "hidden_size": 64, "intermediate_size": 128, "head_dim": 32}


class Disk(Storage):
    """A disk that kills the process at the n-th link, sync or rename of a shard; 0 for never."""

    def __init__(self, kill_at: int = 0) -> None:
        self.kill_at, self.operations = kill_at, 0
        self._counting = threading.Lock()
        self.linked: list[str] = []

    def _count(self) -> None:
        with self._counting:  # shards are synced by several threads: each has a number of its own
            self.operations += 1
            if self.operations == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def hard_link(self, source: Path, path: Path) -> bool:
        self._count()
        self.linked.append(path.name)
        return super().hard_link(source, path)

    def sync_data(self, fd: int) -> None:
        self._count()
        super().sync_data(fd)

    def rename(self, source: Path, target: Path) -> None:
        if ".safetensors" in target.name:
            self._count()
        super().rename(source, target)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write `base` to eight files of several batches each, and `adapter` for layers 1 and 4."""
    use_small_batches(monkeypatch, 8 * 1024)
    write_adapter(tmp_path / "adapter", write_in_files(tmp_path / "base", LARGER), [1, 4])
    (tmp_path / "recipe.yaml").write_text(COPY)
    with working_in(tmp_path):
        yield tmp_path


def link(models: Path, disk: Storage | None = None, told: Told | None = None, **more: Any) -> Path:
    """Merge `recipe.yaml` with hard links, or continue that merge, and return the output."""
    options = Options(state_dir=models / "state", threads=2, link=True, **more)
    session = Session(options, reporter=told or Told(), storage=disk or Storage())
    session.run(Path("recipe.yaml"), models / "out")
    return models / "out"


def facts(folder: Path) -> dict[str, Any]:
    """Return what must not change of a model: bytes, times and inodes of its files."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
        for path in folder.iterdir()
    }


def links_of(models: Path) -> set[str]:
    shards = (models / "out").glob("*.safetensors")
    return {path.name for path in shards if path.samefile(models / "base" / path.name)}


def verify(models: Path) -> resumerge.Verification:
    return resumerge.verify(models / "out", state_dir=models / "state")


def test_copies_are_names_of_the_models_files(models: Path) -> None:
    before = facts(models / "base")
    calm = shards_of(merge(models, COPY, models / "calm"))
    link(models)
    assert shards_of(models / "out") == calm
    assert links_of(models) == calm.keys() - {TOUCHED, "model-00006-of-00008.safetensors"}
    assert facts(models / "base") == before
    assert verify(models).intact
    told = Told()
    link(models, told=told)
    assert told.notes == ["done"], "nothing looks changed"


def test_killed_anywhere_it_goes_on_and_links(models: Path) -> None:
    before, disk = facts(models / "base"), Disk()
    calm = shards_of(link(models, disk))
    assert len(disk.linked) == 6
    draw = random.Random(0)
    for at in (1, 3, *(draw.randrange(2, disk.operations) for _ in range(6))):
        for name in ("out", "state"):
            shutil.rmtree(models / name)
        if (child := os.fork()) == 0:
            try:
                link(models, Disk(at))
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        told = Told()
        link(models, told=told)
        assert shards_of(models / "out") == calm
        assert len(links_of(models)) == 6
        assert facts(models / "base") == before
        assert not any("modification" in note for note in told.notes), told.notes
        assert not list((models / "out").glob("*.partial"))


def damage(path: Path, *, keep_time: bool = False) -> None:
    """Change a byte of a file in place."""
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        last = file.read(1)
        file.seek(-100, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    if keep_time:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_damage_of_both_is_told_and_not_taken_for_the_model(models: Path) -> None:
    calm = shards_of(link(models))
    damage(models / "out" / LINKED)
    for _ in range(2):  # nothing was noted: it is found again
        found = verify(models)
        assert not found.intact
        assert found.linked == (str(models / "base" / LINKED),)
        assert all("itself" in what for what in found.damaged.values())
    assert found.as_json()["linked"] == [*found.linked]
    os.utime(models / "out" / LINKED)
    (models / "base" / LINKED).write_bytes(calm[LINKED])
    assert verify(models).intact
    link(models)
    assert shards_of(models / "out") == calm


def test_damage_that_the_filesystem_does_not_tell_stops_what_goes_on(models: Path) -> None:
    disk = Disk()
    calm = shards_of(link(models, disk))
    for name in ("out", "state"):
        shutil.rmtree(models / name)
    if (child := os.fork()) == 0:
        try:
            link(models, Disk(disk.operations - 1))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    damage(models / "out" / LINKED, keep_time=True)
    with pytest.raises(Resumable, match="another name of the same file") as stopped:
        link(models)
    assert stopped.value.reason == Reason.SOURCE_CHANGED
    (models / "base" / LINKED).write_bytes(calm[LINKED])
    link(models)
    assert shards_of(models / "out") == calm


def test_a_changed_model_is_refused(models: Path) -> None:
    link(models)
    (models / "out" / "config.json").unlink()  # so that the run is not done
    damage(models / "base" / LINKED)
    with pytest.raises(InputError, match="base"):
        link(models)


def test_a_shard_that_became_a_file_of_its_own_is_mended_alone(models: Path) -> None:
    before = facts(models / "base")
    calm = shards_of(link(models))
    path = models / "out" / LINKED
    path.unlink()
    path.write_bytes(calm[LINKED])
    damage(path)
    assert not verify(models).intact
    link(models)
    assert shards_of(models / "out") == calm
    assert len(links_of(models)) == 6
    assert facts(models / "base") == before


def test_a_model_that_came_anew_mends_the_output(models: Path) -> None:
    calm = shards_of(link(models))
    damage(models / "out" / LINKED)
    (models / "fresh").write_bytes(calm[LINKED])
    (models / "fresh").replace(models / "base" / LINKED)
    found = verify(models)
    assert not found.intact and not found.linked
    link(models)
    assert shards_of(models / "out") == calm
    assert len(links_of(models)) == 6


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_what_cannot_be_linked_is_copied(
    models: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    told = Told()
    link(models, told=told)
    assert shards_of(models / "out") == shards_of(merge(models, COPY, models / "calm"))
    assert not links_of(models)
    assert any("6 files copied, not linked" in note for note in told.notes)


def test_files_that_the_user_linked_elsewhere_stay_as_they_are(models: Path) -> None:
    """A damaged shard whose other name is a backup is repaired in a file of its own."""
    out = merge(models, COPY, models / "out", state_dir=models / "state")
    calm = shards_of(out)
    for name in (LINKED, TOUCHED):
        (models / f"backup-{name}").hardlink_to(out / name)
        damage(out / name)
    damaged = {name: (models / f"backup-{name}").read_bytes() for name in (LINKED, TOUCHED)}
    assert not verify(models).intact
    resumerge.resume(out, state_dir=models / "state")
    assert shards_of(out) == calm
    assert {n: (models / f"backup-{n}").read_bytes() for n in damaged} == damaged


def test_a_mirror_has_copies_and_the_model_stays(models: Path) -> None:
    before, mirror = facts(models / "base"), models / "mirror"
    mirror.mkdir()
    link(models, mirror=str(mirror), mirror_then_delete=True)
    assert not list((models / "out").glob("*.safetensors"))
    assert shards_of(mirror) == shards_of(merge(models, COPY, models / "calm"))
    assert not any(path.stat().st_nlink > 1 for path in mirror.glob("*.safetensors"))
    assert facts(models / "base") == before


def test_starting_over_and_cleaning_leave_the_model(models: Path) -> None:
    before = facts(models / "base")
    link(models)
    link(models, restart=True)
    assert facts(models / "base") == before
    assert len(links_of(models)) == 6


def test_plan_says_what_is_linked(models: Path) -> None:
    plan = resumerge.plan("recipe.yaml", models / "out", link=True, state_dir=models / "state")
    copied = plan["copied"]
    assert plan["linked"] == copied
    assert copied["shards"] == 6
    without = resumerge.plan("recipe.yaml", models / "out", state_dir=models / "state")
    assert without["linked"] == {"shards": 0, "bytes": 0}
    saved = without["disk"]["needed"] - plan["disk"]["needed"]
    assert saved == copied["bytes"]


def test_a_recipe_without_copies_says_that_nothing_is_linked(models: Path) -> None:
    (models / "recipe.yaml").write_text(COPY + "dtype: float32\n")
    plan = resumerge.plan("recipe.yaml", models / "out", link=True, state_dir=models / "state")
    assert plan["linked"]["shards"] == 0
    assert [note for note in plan["notes"] if "no effect" in note], plan["notes"]
