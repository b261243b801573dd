"""Promise: in memory (tmpfs) an output takes what is written of it, and no space beforehand."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from crashing import Bench, Merge, Paused
from small_disks import fill, mounted

from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.space_reservation import starts_sparse
from resumerge.planning import Estimate, Plan
from resumerge.planning.plan import Shard
from resumerge.storage import Storage, is_in_memory

SHARDS = 4


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("memory"), 48 << 20) as folder:
        yield folder


def stopped_before_the_first_block(bench: Bench, disk: Path) -> tuple[Merge, Paused]:
    """Stop a merge when all shards exist, and contain only headers."""
    first = bench.merge(disk=disk)
    kinds = first.run().kinds
    first.remove()
    syncs = [at for at, kind in enumerate(kinds, 1) if re.match(r"sync model.*partial", kind)]
    merge = bench.merge(disk=disk)
    return merge, merge.start("run", syncs[SHARDS - 1])


def taken(merge: Merge) -> tuple[int, int]:
    """Return the bytes that the shards occupy on the disk, and their sizes."""
    found = [path.stat() for path in merge.out.glob("*.safetensors*")]
    return sum(s.st_blocks * 512 for s in found), sum(s.st_size for s in found)


def test_space_is_taken_as_it_is_written(
    bench: Bench, memory: Path, reference: dict[str, bytes]
) -> None:
    merge, paused = stopped_before_the_first_block(bench, memory)
    space, size = taken(merge)
    assert paused.go_on().code == 0
    merge.assert_finals_are(reference)
    assert size == sum(
        len(data) for name, data in reference.items() if name.endswith(".safetensors")
    )
    assert space < 0.8 * size
    assert taken(merge)[0] >= size
    merge.remove()


def test_on_a_disk_it_is_taken_at_once(bench: Bench, tmp_path: Path) -> None:
    if is_in_memory(tmp_path):
        pytest.skip("temporary files are in memory here")
    merge, paused = stopped_before_the_first_block(bench, tmp_path)
    space, size = taken(merge)
    assert paused.go_on().code == 0
    assert space >= size


def test_what_is_not_written_yet_has_to_be_free_where_a_run_goes_on(
    memory: Path, tmp_path: Path
) -> None:
    shard = Shard(
        number=0, name="model.safetensors", header=b"header", nbytes=1 << 20, first=0, last=1
    )
    plan = cast(Plan, SimpleNamespace(shards=[shard]))
    files = ShardFiles(plan, memory, Storage(), sparse=True)
    assert files.unallocated(shard) == 1 << 20
    files.create(shard)
    assert files.unallocated(shard) == (1 << 20) - 4096
    os.pwrite(files.descriptor(0), bytes(1 << 19), 0)
    assert files.unallocated(shard) == 1 << 19
    files.seal(shard)
    assert files.unallocated(shard) == 1 << 19
    files.final(shard).unlink()


def test_a_memory_that_is_full_midway_stops_the_run_and_loses_nothing(
    bench: Bench, memory: Path, reference: dict[str, bytes]
) -> None:
    merge, paused = stopped_before_the_first_block(bench, memory)
    fill(memory / "ballast")
    ended = paused.go_on()
    (memory / "ballast").unlink()
    assert ended.code == 75
    assert "full" in ended.stderr
    merge.finish()
    merge.assert_done(reference)
    merge.remove()


@pytest.mark.parametrize(
    ("present", "frees", "later"),
    [(True, False, True), (False, False, False), (True, True, False)],
)
def test_space_is_taken_at_once_where_something_else_counts_on_what_is_free(
    memory: Path, present: bool, frees: bool, later: bool
) -> None:
    """Downloads to the same disk, or the next shard if a mirror frees shards, need free space."""
    estimate = SimpleNamespace(missing=() if present else ((0, "weights"),))
    assert starts_sparse(cast(Estimate, estimate), memory, frees=frees) is later
