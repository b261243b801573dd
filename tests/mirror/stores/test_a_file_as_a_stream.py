"""Promise: whoever counts the bytes of an upload sees each piece before it goes out, also when it
goes out again, and stops it for good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resumerge.mirror.stores.upload_reader import REPORT_BYTES, Stopped, UploadReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(bytes(REPORT_BYTES + 10))
    return path


def test_a_piece_is_read_at_once_whatever_is_asked_for(path: Path) -> None:
    moved: list[int] = []
    with UploadReader(path, moved.append) as reader:
        sizes = [len(reader.read(size)) for size in (-1, 4, None, 9, -1, -1)]
    assert sizes == [REPORT_BYTES, 4, 6, 0, 0, 0]
    assert moved == [REPORT_BYTES, 4, 6], "the end is nothing that moved"
    with UploadReader(path, moved.append) as reader:
        assert len(reader.read(2 * REPORT_BYTES)) == REPORT_BYTES


def test_what_is_sent_again_is_told_again(path: Path) -> None:
    moved: list[int] = []
    with UploadReader(path, moved.append) as reader:
        reader.read(7)
        assert reader.tell() == 7
        assert reader.seek(-3, os.SEEK_END) == REPORT_BYTES + 7
        assert len(reader.read()) == 3
        reader.seek(0)
        reader.read(5)
    assert moved == [7, 3, 5]


def test_who_stops_it_stops_every_later_read(path: Path) -> None:
    """A library that tries again gets no byte, and the callback is not called again."""
    asked: list[int] = []

    def stop(nbytes: int) -> None:
        asked.append(nbytes)
        raise OSError("the lease is lost")

    with UploadReader(path, stop) as reader:
        for _ in range(3):
            with pytest.raises(Stopped):
                reader.read(5)
            reader.seek(0)
        assert str(reader.stopped) == "the lease is lost"
    assert asked == [5]


def test_a_stop_is_no_error_that_is_tried_again() -> None:
    assert not issubclass(Stopped, OSError)
