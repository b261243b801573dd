"""Promise: an upload that was cut off goes on, and what arrived wrong is sent again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from resumerge.mirror.stores.folder import FolderStore
from resumerge.mirror.stores.plain_files import FILE_PIECE_BYTES
from resumerge.storage import Storage

NBYTES = 6 * FILE_PIECE_BYTES + 12345


class Counting(Storage):
    """A storage that counts the written bytes, and may be unable to continue a file."""

    def __init__(self, *, extends: bool = True) -> None:
        self.written, self.extends = 0, extends

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        super().write(fd, data, offset)
        self.written += len(data)

    def open(self, path: Path) -> int:
        if not self.extends:
            raise OSError(95, "not here")
        return super().open(path)


class CutOff(Exception):
    pass


def cut_after(pieces: int):
    moved = 0

    def tell(nbytes: int) -> None:
        nonlocal moved
        moved += nbytes
        if moved >= pieces * FILE_PIECE_BYTES:
            raise CutOff

    return tell


def nothing(nbytes: int) -> None:
    pass


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard.safetensors"
    path.write_bytes(os.urandom(NBYTES))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("extends", [True, False])
def test_an_upload_goes_on_where_it_was_cut_off(tmp_path: Path, shard: Path, extends: bool) -> None:
    mirror = tmp_path / "mirror"
    with pytest.raises(CutOff):
        FolderStore(mirror).upload("a.safetensors", shard, cut_after(4))
    assert not (mirror / "a.safetensors").exists()
    store = FolderStore(mirror, Counting(extends=extends))
    assert store.capabilities.extend is extends
    before = store._storage.written
    assert store.upload("a.safetensors", shard, nothing) == sha256(shard)
    sent = store._storage.written - before
    assert sent == (NBYTES - 4 * FILE_PIECE_BYTES if extends else NBYTES)
    assert sha256(mirror / "a.safetensors") == sha256(shard)
    assert [path.name for path in mirror.iterdir() if path.is_file()] == ["a.safetensors"]


def test_a_beginning_that_is_not_the_shards_own_is_sent_again(tmp_path: Path, shard: Path) -> None:
    mirror = tmp_path / "mirror"
    store = FolderStore(mirror)
    with pytest.raises(CutOff):
        store.upload("a.safetensors", shard, cut_after(4))
    with (mirror / "a.safetensors.part").open(
        "r+b"
    ) as part:  # a disk that lost what was not synced
        part.seek(FILE_PIECE_BYTES)
        part.write(bytes(1000))
    with pytest.raises(OSError, match="differs from the original"):
        store.upload("a.safetensors", shard, nothing)
    assert not (mirror / "a.safetensors").exists()
    assert store.upload("a.safetensors", shard, nothing) == sha256(shard)
    assert sha256(mirror / "a.safetensors") == sha256(shard)


def test_a_whole_file_is_compared_and_not_sent(tmp_path: Path, shard: Path) -> None:
    FolderStore(tmp_path / "mirror").upload("a.safetensors", shard, nothing)
    store = FolderStore(tmp_path / "mirror", Counting())
    assert store.capabilities
    before = store._storage.written
    assert store.upload("a.safetensors", shard, nothing) == sha256(shard)
    assert store._storage.written == before
    (tmp_path / "mirror" / "a.safetensors").write_bytes(bytes(NBYTES))
    assert store.upload("a.safetensors", shard, nothing) == sha256(shard)
    assert sha256(tmp_path / "mirror" / "a.safetensors") == sha256(shard)


def test_a_download_goes_on_where_it_was_cut_off(tmp_path: Path, shard: Path) -> None:
    store = FolderStore(tmp_path / "mirror")
    store.upload("a.safetensors", shard, nothing)
    here, moved = tmp_path / "here", []
    with pytest.raises(CutOff):
        store.download("a.safetensors", here, cut_after(4))
    store.download("a.safetensors", here, moved.append)
    assert sum(moved) == NBYTES - 4 * FILE_PIECE_BYTES
    assert sha256(here) == sha256(shard)


def test_what_was_begun_here_and_is_too_long_is_downloaded_anew(
    tmp_path: Path, shard: Path
) -> None:
    store, here = FolderStore(tmp_path / "mirror"), tmp_path / "here"
    store.upload("a.safetensors", shard, nothing)
    here.write_bytes(b"?" * (NBYTES + 1))
    store.download("a.safetensors", here, nothing)
    assert sha256(here) == sha256(shard)
    moved: list[int] = []
    store.download("a.safetensors", here, moved.append)
    assert not sum(moved), "all of it is here"


def test_bytes_that_go_to_the_mirror_and_back_are_told_and_no_others(
    tmp_path: Path, shard: Path
) -> None:
    """The rate limit counts these bytes, and none that are only read on the local disk."""
    mirror, moved = tmp_path / "mirror", list[int]()

    def upload() -> int:
        moved.clear()
        FolderStore(mirror).upload("a.safetensors", shard, moved.append)
        return sum(moved)

    assert upload() == 2 * NBYTES, "sent, and read again to compare"
    assert upload() == NBYTES, "compared"
    os.truncate(mirror / "a.safetensors", 3 * FILE_PIECE_BYTES)
    (mirror / "a.safetensors").rename(mirror / "a.safetensors.part")
    assert upload() == NBYTES - 3 * FILE_PIECE_BYTES + NBYTES
    assert max(moved) <= FILE_PIECE_BYTES
    assert moved.count(0) >= 3, "it can be stopped while it reads what it does not send"


def test_a_drive_that_is_not_mounted_is_not_made(tmp_path: Path, shard: Path) -> None:
    store = FolderStore(tmp_path / "mnt" / "drive" / "model")
    with pytest.raises(FileNotFoundError):
        store.upload("a.safetensors", shard, nothing)
    assert list(tmp_path.iterdir()) == [shard]
