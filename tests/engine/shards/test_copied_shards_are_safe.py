"""Promise: a shard that is a copy of a weight file is as safe as another, and may share blocks."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from merging import merge, shards_of, working_in
from models_in_files import COPY, SIX_LAYERS, write_adapter, write_in_files
from small_batches import use_small_batches

import resumerge
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.errors import InputError
from resumerge.host.machine import FREE_FOR_COMPANIONS
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import read_recipe
from resumerge.storage import Storage

COPIED = "model-00002-of-00008.safetensors"
LARGER = {**SIX_LAYERS, "hidden_size": 64, "intermediate_size": 128, "head_dim": 32}


class Disk(Storage):
    """A disk that counts the writes to shards, and kills the process before one of them.

    Args:
        kill_at: the number of the write, from 1; 0 for none.
        clones: whether files can share blocks; the test copies them, with the same effect.
    """

    def __init__(self, kill_at: int = 0, *, clones: bool = False) -> None:
        self.kill_at, self.clones = kill_at, clones
        self._counting = threading.Lock()
        self.writes: list[str] = []
        self.cloned: list[str] = []

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        if name.endswith(".safetensors.partial") and offset:
            with self._counting:  # two threads write: each of them has a number of its own
                self.writes.append(name.removesuffix(".partial"))
                if len(self.writes) == self.kill_at:
                    os.pwrite(fd, bytes(data)[: len(data) // 2], offset)
                    os.kill(os.getpid(), signal.SIGKILL)
        super().write(fd, data, offset)

    def clone(self, source: Path, fd: int) -> bool:
        if self.clones:
            if Path(f"/proc/self/fd/{fd}").readlink().name.endswith(".partial"):
                self.cloned.append(source.name)
            os.pwrite(fd, source.read_bytes(), 0)
        return self.clones


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write `base` to eight files of several batches each, and `adapter` for layers 1 and 4."""
    use_small_batches(monkeypatch, 8 * 1024)
    write_adapter(tmp_path / "adapter", write_in_files(tmp_path / "base", LARGER), [1, 4])
    (tmp_path / "recipe.yaml").write_text(COPY)
    with working_in(tmp_path):
        yield tmp_path


def options_of(models: Path) -> Options:
    return Options(state_dir=models / "state", threads=2)


def context(models: Path, disk: Disk) -> RunContext:
    options = options_of(models)
    return RunContext(options, Reporter(), disk, StopRequest(), RunStore(options.state_dir))


def start(models: Path, disk: Disk) -> int:
    """Run or resume in a child; return its exit code, or minus the number of its signal."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            session = Session(options_of(models), storage=disk)
            session.run(Path("recipe.yaml"), models / "out")
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_within_copied_shards_it_goes_on(models: Path) -> None:
    calm = shards_of(merge(models, COPY, models / "calm", threads=2))
    disk = Disk()
    Session(options_of(models), storage=disk).run(Path("recipe.yaml"), models / "out")
    total = len(disk.writes)
    assert disk.writes.count(COPIED) > 4
    draw = random.Random(0)
    within = [n for n, name in enumerate(disk.writes, 1) if name == COPIED]
    for first in (within[len(within) // 2], *(draw.randrange(2, total) for _ in range(3))):
        for name in ("out", "state"):
            shutil.rmtree(models / name)
        assert start(models, Disk(first)) == -signal.SIGKILL
        assert not any(data != calm[name] for name, data in shards_of(models / "out").items()), (
            "what has its final name is whole"
        )
        rest = Disk()
        Session(options_of(models), storage=rest).resume("out")
        assert shards_of(models / "out") == calm
        assert len(rest.writes) <= total - first + 8, "a half-copied file goes on"
        found = resumerge.verify(models / "out", state_dir=models / "state")
        assert found.intact


def test_a_damaged_copy_is_found_and_mended(models: Path) -> None:
    out = merge(models, COPY, models / "out", state_dir=models / "state")
    calm = shards_of(out)
    damaged = bytearray(calm[COPIED])
    damaged[-100] ^= 1
    (out / COPIED).write_bytes(damaged)
    found = resumerge.verify(out, state_dir=models / "state")
    assert not found.intact
    assert COPIED in str(found)
    disk = Disk()
    Session(options_of(models), storage=disk).resume("out")
    assert shards_of(out) == calm
    assert {*disk.writes} == {COPIED}


def test_shared_blocks_are_not_written(models: Path) -> None:
    calm = shards_of(merge(models, COPY, models / "calm", threads=2))
    disk = Disk(clones=True)
    Session(options_of(models), storage=disk).run(Path("recipe.yaml"), models / "out")
    assert shards_of(models / "out") == calm
    assert len(disk.cloned) == 6 and COPIED in disk.cloned
    assert {*disk.writes} == calm.keys() - {*disk.cloned}


def test_killed_while_blocks_are_shared(models: Path) -> None:
    """Blocks of a clone that were not committed are read again, and not written."""
    calm = shards_of(merge(models, COPY, models / "calm", threads=2))
    assert start(models, Disk(3, clones=True)) == -signal.SIGKILL
    rest = Disk(clones=True)
    Session(options_of(models), storage=rest).resume("out")
    assert shards_of(models / "out") == calm
    assert not {*rest.writes} & {*rest.cloned}


def test_a_clone_is_asked_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(b"weights")
    (tmp_path / "link").symlink_to("source")
    fd = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT)
    asked = []

    def ioctl(target: int, request: int, source: int) -> int:
        asked.append((target, request, Path(f"/proc/self/fd/{source}").readlink().name))
        if len(asked) > 1:
            raise OSError([0, errno.EOPNOTSUPP, errno.EXDEV, errno.EIO][len(asked) - 1], "no")
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    assert Storage().clone(tmp_path / "link", fd)
    assert asked == [(fd, 0x40049409, "source")]
    assert not Storage().clone(tmp_path / "link", fd)
    assert not Storage().clone(tmp_path / "link", fd)
    with pytest.raises(OSError):
        Storage().clone(tmp_path / "link", fd)
    os.close(fd)


def test_shared_blocks_take_no_space(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk needs room only for the shards that are not copies."""
    plan, _ = pinned_plan(context(models, Disk(clones=True)), read_recipe(Path("recipe.yaml")))
    sizes = [shard.nbytes for shard in plan.shards if shard.copied is None]
    room = sum(sizes) + FREE_FOR_COMPANIONS
    monkeypatch.setattr("resumerge.engine.checks.disk.free_bytes", lambda folder: room)
    with pytest.raises(InputError, match="too small for the output"):
        Session(options_of(models), storage=Disk()).run(Path("recipe.yaml"), models / "out")
    assert not (models / "out").exists()
    disk = Disk(clones=True)
    Session(options_of(models), storage=disk).run(Path("recipe.yaml"), models / "out")
    files = ShardFiles(plan, models / "elsewhere", disk)
    assert [files.unallocated(shard) for shard in plan.shards if shard.copied is None] == sizes
    assert not any(files.unallocated(shard) for shard in plan.shards if shard.copied)


def test_a_mirror_has_the_copies_too(models: Path) -> None:
    mirror = models / "mirror"
    mirror.mkdir()
    out = merge(models, COPY, models / "out", mirror=str(mirror), mirror_then_delete=True)
    assert not list(out.glob("*.safetensors")), "they are in the mirror"
    assert shards_of(mirror) == shards_of(merge(models, COPY, models / "calm"))
