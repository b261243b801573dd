"""Promise: a shard's file has its size, header and space before it is written, and one name."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from descriptors import is_open_on
from made_up_plans import llama, plan, vectors

from resumerge.engine.shards import space_reservation
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.space_reservation import SpaceReservation, starts_sparse
from resumerge.host.machine import FREE_BESIDE_SHARDS
from resumerge.ledger import Progress
from resumerge.planning import Plan, estimate
from resumerge.sizes import show_size
from resumerge.storage import Storage

PENDING = Progress(
    committed_blocks=0, hashes=b"", input_hashes=b"", checksum=None, attempt=None, batch=None
)
DONE = Progress(
    committed_blocks=1, hashes=b"", input_hashes=b"", checksum="known", attempt=None, batch=None
)


@pytest.fixture
def found() -> Plan:
    made = plan("merge_method: passthrough\nmodels: [{model: a}]\n", llama("a"), shard_size=200)
    assert len(made.shards) > 2
    return made


def test_a_shard_is_made_whole_and_is_known_by_its_header(found: Plan, tmp_path: Path) -> None:
    files, shard = ShardFiles(found, tmp_path, Storage()), found.shards[0]
    assert not files.has_size_and_header(shard, files.partial(shard)), "there is none"
    files.create(shard)
    path = files.partial(shard)
    assert path.name == shard.name + ".partial" and path.stat().st_size == shard.nbytes
    assert files.has_size_and_header(shard, path)
    content = path.read_bytes()
    assert content.startswith(shard.header)
    path.write_bytes(content[:-1])
    assert not files.has_size_and_header(shard, path)
    path.write_bytes(content[:9] + b"?" + content[10:])
    assert not files.has_size_and_header(shard, path)


def test_a_sealed_shard_has_its_final_name_and_is_closed(found: Plan, tmp_path: Path) -> None:
    files, shard = ShardFiles(found, tmp_path, Storage()), found.shards[1]
    files.create(shard)
    descriptor = files.descriptor(1)
    assert files.descriptor(1) == descriptor
    opened = os.fstat(descriptor)
    files.seal(shard)
    assert not is_open_on(descriptor, opened)
    assert files.final(shard).name == shard.name
    assert not files.partial(shard).exists() and files.final(shard).exists()
    files.unseal(shard)
    assert files.partial(shard).exists() and not files.final(shard).exists()
    again = files.descriptor(1)
    files.remove(shard)
    assert not files.partial(shard).exists()
    assert not is_open_on(again, opened)


def test_every_open_shard_is_closed_at_the_end(found: Plan, tmp_path: Path) -> None:
    files = ShardFiles(found, tmp_path, Storage())
    for shard in found.shards:
        files.create(shard)
    descriptors = [files.descriptor(shard.number) for shard in found.shards]
    opened = [os.fstat(descriptor) for descriptor in descriptors]
    files.close()
    assert not any(map(is_open_on, descriptors, opened))


def test_what_a_shard_still_needs_of_the_disk(
    found: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, shard = ShardFiles(found, tmp_path, Storage()), found.shards[0]
    in_memory = False
    where = "resumerge.engine.shards.shard_files.is_in_memory"
    monkeypatch.setattr(where, lambda folder: in_memory)
    assert files.unallocated(shard) == shard.nbytes
    files.partial(shard).write_bytes(b"")
    assert files.unallocated(shard) == 0, "a disk has given it its space"
    in_memory = True
    os.truncate(files.partial(shard), shard.nbytes)
    assert files.unallocated(shard) == shard.nbytes, "memory is taken as it is written"
    files.partial(shard).rename(files.final(shard))
    files.final(shard).write_bytes(bytes(1 << 20))
    assert files.unallocated(shard) == 0, "never less than nothing"


def test_space_is_taken_lazily_in_memory_alone(
    found: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = True
    monkeypatch.setattr(space_reservation, "is_in_memory", lambda folder: in_memory)
    assert starts_sparse(estimate(found), tmp_path, frees=False)
    assert not starts_sparse(estimate(found), tmp_path, frees=True)
    [source] = found.sources
    file = replace(source.files["m.safetensors"], present=False)
    other = replace(file, name="other", present=False)
    away = replace(source, files={"m.safetensors": file})
    assert not starts_sparse(estimate(replace(found, sources=(away,))), tmp_path, frees=False)
    unread = replace(source, files={**source.files, "other": other})
    assert starts_sparse(estimate(replace(found, sources=(unread,))), tmp_path, frees=False)
    in_memory = False
    assert not starts_sparse(estimate(found), tmp_path, frees=False)


def reservation(
    found: Plan, out: Path, done: int = 0, *, frees: bool = True
) -> tuple[SpaceReservation, ShardFiles]:
    """Return the space reservation of an output, and the files of its shards.

    Args:
        found: the plan.
        out: the output folder.
        done: the number of shards, from the first one, that are committed.
        frees: whether a mirror frees shards.
    """
    files = ShardFiles(found, out, Storage())
    progress = [DONE if unit.shard < done else PENDING for unit in found.units]
    mirror: Any = object() if frees else None
    return SpaceReservation(found, files, progress, mirror), files


def test_a_shard_gets_its_space_if_enough_is_left_besides(
    found: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FREE_BESIDE_SHARDS >= 8 << 20, "for the ledger and the files beside the shards"
    space, files = reservation(found, tmp_path)
    first = found.shards[0]
    free = first.nbytes + FREE_BESIDE_SHARDS - 1
    monkeypatch.setattr(space_reservation, "free_bytes", lambda folder: free)
    assert not space.reserve(0) and not files.partial(first).exists()
    free += 1
    assert space.reserve(0) and space.is_allocated(0) and not space.is_allocated(1)
    assert files.partial(first).stat().st_size == first.nbytes
    free = 0
    assert space.reserve(0), "it has it"
    again, _ = reservation(found, tmp_path)
    assert again.is_allocated(0), "since the attempt before"
    whole, _ = reservation(found, tmp_path / "elsewhere", frees=False)
    assert whole.reserve(2), "without a mirror all have it from the beginning"


@pytest.mark.parametrize(
    ("code", "raises"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True)]
)
def test_a_disk_that_fills_up_meanwhile_leaves_no_piece_of_a_shard(
    found: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, raises: bool
) -> None:
    space, files = reservation(found, tmp_path)

    def create(shard: Any) -> None:
        files.partial(shard).write_bytes(b"a piece")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files, "create", create)
    if raises:
        with pytest.raises(OSError):
            space.reserve(0)
    else:
        assert not space.reserve(0)
    assert not files.partial(found.shards[0]).exists() and not space.is_allocated(0)


def test_downloads_leave_room_for_the_next_shard_of_the_same_disk(
    found: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    space, files = reservation(found, tmp_path, done=1)
    second = found.shards[1]
    assert (
        space.reserved_bytes(False, cache)
        == space.reserved_bytes(True, cache)
        == second.nbytes + FREE_BESIDE_SHARDS
    )
    assert space.reserve(1)
    assert space.reserved_bytes(False, cache) == found.shards[2].nbytes + FREE_BESIDE_SHARDS
    assert space.reserved_bytes(True, cache) == 0, "what has its space goes first"
    everything, _ = reservation(found, tmp_path, done=len(found.shards))
    assert everything.reserved_bytes(False, cache) == 0
    without, _ = reservation(found, tmp_path, frees=False)
    assert without.reserved_bytes(False, cache) == 0
    memory = Path("/dev/shm")
    if memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev:
        assert space.reserved_bytes(False, memory / "none") == 0, "downloads go to another disk"
    assert files.partial(second).exists()


def test_a_full_disk_is_told(found: Plan, tmp_path: Path) -> None:
    space, _ = reservation(found, tmp_path)
    error = space.no_space(2)
    assert error.reason == "disk_full"
    assert found.shards[2].name in str(error) and str(tmp_path) in str(error)
    needed = show_size(found.shards[2].nbytes + FREE_BESIDE_SHARDS)
    assert f"{needed} is needed" in str(error), "with what is left free beside it"


def test_the_mirror_says_whether_space_will_be_freed(found: Plan, tmp_path: Path) -> None:
    space, _ = reservation(found, tmp_path)
    asked: list[float] = []

    def frees(waited: float) -> bool:
        asked.append(waited)
        return waited < 5

    space._replicator = SimpleNamespace(frees=frees)  # type: ignore[assignment]
    assert space.will_be_freed(4.0) and not space.will_be_freed(6.0)
    assert asked == [4.0, 6.0], "it gives up by the time without progress"
    without, _ = reservation(found, tmp_path, frees=False)
    assert not without.will_be_freed(0.0)


def test_the_next_shard_is_the_first_that_has_no_space_yet(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    recipe = "merge_method: passthrough\nmodels: [{model: a}]\n"
    uneven = plan(recipe, vectors("a", 10, 20, 40), shard_size=4)
    sizes = [shard.nbytes for shard in uneven.shards]
    assert sizes == sorted(set(sizes)) and len(sizes) == 3
    space, _ = reservation(uneven, tmp_path)
    for number, size in enumerate(sizes):
        assert space.reserved_bytes(False, cache) == size + FREE_BESIDE_SHARDS
        assert space.reserve(number)
    assert space.reserved_bytes(False, cache) == 0
