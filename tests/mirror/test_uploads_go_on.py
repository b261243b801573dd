"""Promise: an upload that was cut off goes on, and what arrived wrong is sent again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from resumerge.mirror.stores.folder import PIECE, FolderPlace
from resumerge.storage import Storage

NBYTES = 6 * PIECE + 12345


class Counting(Storage):
    """Counts the bytes that are written; does not begin files that were begun, if told so."""

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
        if moved >= pieces * PIECE:
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
        FolderPlace(mirror).upload("a.safetensors", shard, cut_after(4))
    assert not (mirror / "a.safetensors").exists()
    place = FolderPlace(mirror, Counting(extends=extends))
    assert place.abilities.extend is extends
    before = place._storage.written
    assert place.upload("a.safetensors", shard, nothing) == sha256(shard)
    sent = place._storage.written - before
    assert sent == (NBYTES - 4 * PIECE if extends else NBYTES)
    assert sha256(mirror / "a.safetensors") == sha256(shard)
    assert [path.name for path in mirror.iterdir() if path.is_file()] == ["a.safetensors"]


def test_a_beginning_that_is_not_the_shards_own_is_sent_again(tmp_path: Path, shard: Path) -> None:
    mirror = tmp_path / "mirror"
    place = FolderPlace(mirror)
    with pytest.raises(CutOff):
        place.upload("a.safetensors", shard, cut_after(4))
    with (mirror / "a.safetensors.part").open(
        "r+b"
    ) as part:  # a disk that lost what was not synced
        part.seek(PIECE)
        part.write(bytes(1000))
    with pytest.raises(OSError, match="not what was sent"):
        place.upload("a.safetensors", shard, nothing)
    assert not (mirror / "a.safetensors").exists()
    assert place.upload("a.safetensors", shard, nothing) == sha256(shard)
    assert sha256(mirror / "a.safetensors") == sha256(shard)


def test_a_whole_file_is_compared_and_not_sent(tmp_path: Path, shard: Path) -> None:
    FolderPlace(tmp_path / "mirror").upload("a.safetensors", shard, nothing)
    place = FolderPlace(tmp_path / "mirror", Counting())
    assert place.abilities
    before = place._storage.written
    assert place.upload("a.safetensors", shard, nothing) == sha256(shard)
    assert place._storage.written == before
    (tmp_path / "mirror" / "a.safetensors").write_bytes(bytes(NBYTES))
    assert place.upload("a.safetensors", shard, nothing) == sha256(shard)
    assert sha256(tmp_path / "mirror" / "a.safetensors") == sha256(shard)


def test_a_download_goes_on_where_it_was_cut_off(tmp_path: Path, shard: Path) -> None:
    place = FolderPlace(tmp_path / "mirror")
    place.upload("a.safetensors", shard, nothing)
    here, moved = tmp_path / "here", []
    with pytest.raises(CutOff):
        place.download("a.safetensors", here, cut_after(4))
    place.download("a.safetensors", here, moved.append)
    assert sum(moved) == NBYTES - 4 * PIECE
    assert sha256(here) == sha256(shard)


def test_a_drive_that_is_not_mounted_is_not_made(tmp_path: Path, shard: Path) -> None:
    place = FolderPlace(tmp_path / "mnt" / "drive" / "model")
    with pytest.raises(FileNotFoundError):
        place.upload("a.safetensors", shard, nothing)
    assert list(tmp_path.iterdir()) == [shard]
