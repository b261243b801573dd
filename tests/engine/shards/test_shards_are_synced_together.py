"""Promise: the shards of a batch are synced at once, and none is left out if another fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from made_up_plans import llama, plan
from waiting import HANGS_SECONDS

from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.storage import Storage

COPY = "merge_method: linear\nmodels: [{model: a, parameters: {weight: 1}}]\n"


class Disk(Storage):
    """A disk that syncs no file before `together` of them wait to be synced."""

    def __init__(self, together: int, broken: bool = False) -> None:
        self.begun = threading.Barrier(together)
        self.broken, self.synced = broken, list[str]()

    def sync_data(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        self.begun.wait(HANGS_SECONDS)
        if self.broken and path.name.startswith("model-00001"):
            raise OSError("the disk")
        self.synced.append(path.name)


def files(folder: Path, disk: Disk) -> tuple[ShardFiles, list[str]]:
    """Write three shards; return their files and names."""
    found = plan(COPY, llama("a", 1), shard_size=200)
    names = [f"{shard.name}.partial" for shard in found.shards]
    assert len(names) == 3
    for name in names:
        (folder / name).write_bytes(b"content")
    return ShardFiles(found, folder, disk), names


def test_all_at_once(tmp_path: Path) -> None:
    disk = Disk(3)
    shards, names = files(tmp_path, disk)
    shards.sync([0, 1, 2])
    assert sorted(disk.synced) == names
    shards.close()


def test_what_fails_is_told_when_all_others_are_done(tmp_path: Path) -> None:
    disk = Disk(3, broken=True)
    shards, names = files(tmp_path, disk)
    with pytest.raises(OSError, match="the disk"):
        shards.sync([0, 1, 2])
    assert sorted(disk.synced) == names[1:]
    shards.close()
