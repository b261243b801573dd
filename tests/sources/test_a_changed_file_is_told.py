"""Promise: a weight file that was replaced or changed after its header was read is reported, also
if it is open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import reading
import torch
from safetensors.torch import save_file

from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.reader import SourceReader

FILE = "model.safetensors"
KEY = (0, FILE)


def write(folder: Path, value: float) -> None:
    folder.mkdir(exist_ok=True)
    save_file({"weight": torch.full((8,), value)}, folder / FILE)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    write(tmp_path / "model", 1.0)
    return open_source(ModelRef("model", str(tmp_path / "model")))


@pytest.fixture
def reader(source: Source) -> Iterator[SourceReader]:
    with closing(SourceReader([source])) as reader:
        yield reader


def read(reader: SourceReader, source: Source) -> bytes:
    return reading.read(reading.evaluation(reader), source.tensors["weight"], 0, 8)


def another_file(path: Path) -> None:
    """Replace a file by another one with the same bytes and time."""
    stat, fresh = path.stat(), path.with_suffix(".fresh")
    fresh.write_bytes(path.read_bytes())
    os.utime(fresh, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    fresh.replace(path)


def other_bytes(path: Path) -> None:
    """Change the last byte of a file, but not its time."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    while path.stat().st_ctime_ns == stat.st_ctime_ns:  # some filesystems' clocks tick slowly
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"?")


def gone(path: Path) -> None:
    path.unlink()


def another_time(path: Path) -> None:
    os.utime(path, ns=(0, 0))


WAYS = [another_file, other_bytes, longer, gone, another_time]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_changed_file_is_told(
    reader: SourceReader, source: Source, way: Callable[[Path], None], is_open: bool
) -> None:
    if is_open:
        read(reader, source)
    assert reader.changed([KEY]) == []
    way(source.path(FILE))
    assert reader.changed([KEY]) == [source.path(FILE)]
    assert reader.changed([]) == []


def test_a_file_is_what_it_was_when_its_header_was_read(
    reader: SourceReader, source: Source
) -> None:
    """A file is compared with its state when its header was read, not when it was opened.

    Its tensors may have other places by then.
    """
    other_bytes(source.path(FILE))
    read(reader, source)
    assert reader.changed([KEY]) == [source.path(FILE)]


def test_another_folder_while_the_file_is_opened(
    reader: SourceReader, source: Source, tmp_path: Path
) -> None:
    """The path is that of the first file again; the open file, which was read, is another one."""
    write(tmp_path / "other", 2.0)
    (tmp_path / "model").rename(tmp_path / "aside")
    (tmp_path / "other").rename(tmp_path / "model")
    assert read(reader, source) == torch.full((8,), 2.0).numpy().tobytes()
    (tmp_path / "model").rename(tmp_path / "other")
    (tmp_path / "aside").rename(tmp_path / "model")
    assert reader.changed([KEY]) == [source.path(FILE)]


def test_another_folder_after_the_file_was_opened(
    reader: SourceReader, source: Source, tmp_path: Path
) -> None:
    """The open file is still the first one, but the path is that of another one."""
    read(reader, source)
    write(tmp_path / "other", 2.0)
    (tmp_path / "model").rename(tmp_path / "aside")
    (tmp_path / "other").rename(tmp_path / "model")
    assert reader.changed([KEY]) == [source.path(FILE)]


def test_a_download_is_what_it_was_when_it_was_opened(source: Source) -> None:
    """A download may not have existed when the source was opened."""
    files = {FILE: replace(source.files[FILE], stamp=None)}
    with closing(SourceReader([replace(source, files=files)])) as reader:
        another_file(source.path(FILE))
        assert reader.changed([KEY]) == []
        read(reader, source)
        assert reader.changed([KEY]) == []
        other_bytes(source.path(FILE))
        assert reader.changed([KEY]) == [source.path(FILE)]


def test_a_download_that_is_not_needed_any_more_may_go(source: Source) -> None:
    files = {FILE: replace(source.files[FILE], stamp=None)}
    with closing(SourceReader([replace(source, files=files)])) as reader:
        read(reader, source)
        reader.release(*KEY)
        source.path(FILE).unlink()
        assert reader.changed([KEY]) == []


def test_each_of_several_files_is_told_by_itself(tmp_path: Path) -> None:
    sources = []
    for name in ("one", "two"):
        write(tmp_path / name, 1.0)
        sources.append(open_source(ModelRef(name, str(tmp_path / name))))
    keys = [(0, FILE), (1, FILE)]
    with closing(SourceReader(sources)) as reader:
        other_bytes(sources[1].path(FILE))
        assert reader.changed(keys) == [sources[1].path(FILE)]
        assert reader.changed(keys[:1]) == []


def test_a_stamp_has_all_that_the_filesystem_says_of_a_change(source: Source) -> None:
    """One fact of the stamp may be all that differs if a filesystem does not keep the others."""
    stat = source.path(FILE).stat()
    stamp = source.files[FILE].stamp
    assert stamp is not None
    expected = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    assert stamp.as_json() == expected
