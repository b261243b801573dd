"""Promise: an operation of `Storage` is complete and as durable as documented, or reports it."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from resumerge.storage import Storage, drop_from_cache, is_in_memory

STORAGE = Storage()


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = STORAGE.open(path)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list in which each change and sync of a file is recorded with the file's name."""
    found: list[str] = []

    def watch(owner: Any, name: str, said: str, named: Any) -> None:
        real = getattr(owner, name)

        def watched(*args: Any, **more: Any) -> Any:
            found.append(f"{said} {named(*args).name}")
            return real(*args, **more)

        monkeypatch.setattr(owner, name, watched)

    def of_descriptor(fd: int, *rest: Any) -> Path:
        return Path(f"/proc/self/fd/{fd}").readlink()

    watch(os, "pwrite", "write", of_descriptor)
    watch(os, "fdatasync", "sync", of_descriptor)
    watch(os, "fsync", "sync", of_descriptor)
    watch(Path, "replace", "name", lambda source, target: Path(target))
    watch(Path, "mkdir", "make", lambda path, **more: path)
    return found


# Files


def test_a_write_goes_on_where_the_kernel_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:3], offset))
    (tmp_path / "file").write_bytes(b"." * 12)
    with opened(tmp_path / "file") as fd:
        STORAGE.write(fd, b"01234567", 2)
    assert (tmp_path / "file").read_bytes() == b"..01234567.."


@pytest.mark.parametrize("sparse", [False, True])
def test_a_file_is_made_of_its_size_and_nothing_of_an_older_one(
    tmp_path: Path, sparse: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"older" * 100_000)
    STORAGE.create(path, 300_000, b"head", sparse=sparse)
    assert path.read_bytes() == b"head".ljust(300_000, b"\0")


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[int], list[int]]]:
    """Yield two lists: the errors of the next allocations of space, and the bytes of each."""
    errors: list[int] = []
    asked: list[int] = []

    def fallocate(fd: int, mode: int, offset: int, nbytes: int) -> int:
        assert (mode, offset) == (0, 0)
        asked.append(nbytes)
        ctypes.set_errno(errors[0] if errors else 0)
        return -1 if errors and errors.pop(0) else 0

    system = SimpleNamespace(fallocate=fallocate)
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: system)
    yield errors, asked
    assert not errors, "all of them were met"


def test_its_space_is_its_own_unless_it_is_sparse_or_empty(
    tmp_path: Path, allocations: tuple[list[int], list[int]]
) -> None:
    STORAGE.create(tmp_path / "whole", 10, b"head")
    STORAGE.create(tmp_path / "sparse", 10, b"head", sparse=True)
    STORAGE.create(tmp_path / "empty", 0, b"")
    assert allocations[1] == [10]


@pytest.mark.parametrize("numbers", [[errno.EOPNOTSUPP], [errno.ENOSYS], [errno.EINTR] * 2])
def test_a_system_that_is_interrupted_or_cannot_allocate_hinders_nobody(
    tmp_path: Path, numbers: list[int], allocations: tuple[list[int], list[int]]
) -> None:
    allocations[0].extend(numbers)
    STORAGE.create(tmp_path / "file", 10, b"head")
    assert (tmp_path / "file").read_bytes() == b"head".ljust(10, b"\0")
    assert len(allocations[1]) == (3 if errno.EINTR in numbers else 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_without_the_space_says_so_before_anything_is_written(
    tmp_path: Path, number: int, allocations: tuple[list[int], list[int]]
) -> None:
    allocations[0].append(number)
    with pytest.raises(OSError) as raised:
        STORAGE.create(tmp_path / "file", 10, b"head")
    assert raised.value.errno == number
    assert (tmp_path / "file").read_bytes() == b""


def test_the_disk_begins_with_what_was_written_and_whether_it_can_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with opened(tmp_path / "file") as fd:
        STORAGE.begin_sync(fd, 2, 3)
        asked: list[tuple[int, ...]] = []

        def fail(*words: int) -> int:
            asked.append(words)
            return -1

        system = SimpleNamespace(sync_file_range=fail)
        monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: system)
        Storage().begin_sync(fd, 2, 3)
        assert asked == [(fd, 2, 3, 2)], "SYNC_FILE_RANGE_WRITE alone: it waits for nothing"
        del system.sync_file_range
        Storage().begin_sync(fd, 2, 3)
    assert done == [], "nothing of it is durable"


def test_a_new_file_is_durable_with_its_name(tmp_path: Path, done: list[str]) -> None:
    STORAGE.create(tmp_path / "file", 10, b"head")
    assert done == ["write file", "sync file", f"sync {tmp_path.name}"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    (tmp_path / "file").symlink_to(mine)
    for do in (
        lambda: STORAGE.create(tmp_path / "file", 10, b"head"),
        lambda: STORAGE.open(tmp_path / "file"),
        lambda: STORAGE.begin(tmp_path / "file"),
    ):
        with pytest.raises(OSError) as raised:
            do()
        assert raised.value.errno == errno.ELOOP
    assert mine.read_bytes() == b"mine"


def test_only_who_asks_for_a_new_file_is_refused_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        STORAGE.begin(tmp_path / "file", exclusive=True)
    assert (tmp_path / "file").read_bytes() == b"mine"
    os.close(STORAGE.begin(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b""


def test_a_small_file_appears_whole_and_durable(tmp_path: Path, done: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"older")
    (tmp_path / "file.partial").write_bytes(b"what a process that was killed had begun")
    STORAGE.write_file(tmp_path / "file", b"newer")
    written = ["write file.partial", "sync file.partial", f"sync {tmp_path.name}"]
    assert done == [*written, "name file", f"sync {tmp_path.name}"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"newer"}


def test_a_name_is_durable_in_the_folder_where_it_is(tmp_path: Path, done: list[str]) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "from" / "a").write_bytes(b"content")
    done.clear()
    STORAGE.rename(tmp_path / "from" / "a", tmp_path / "to" / "b")
    assert done == ["name b", "sync to"]
    assert (tmp_path / "to" / "b").read_bytes() == b"content"


def test_a_whole_file_is_synced_by_its_name(tmp_path: Path, done: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "file").chmod(0o400)
    STORAGE.sync_file(tmp_path / "file")
    assert done == ["sync file"]


# Folders


def test_each_folder_on_the_way_is_durable_in_its_own(tmp_path: Path, done: list[str]) -> None:
    STORAGE.make_folder(tmp_path / "a" / "b")
    assert done == ["make a", f"sync {tmp_path.name}", "make b", "sync a"]
    done.clear()
    STORAGE.make_folder(tmp_path / "a" / "b")
    assert done == []


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError):
        STORAGE.make_folder(tmp_path / "a" / "b")
    with pytest.raises(OSError):
        STORAGE.make_folder(tmp_path / "a")


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.EINVAL, False), (errno.EOPNOTSUPP, False), (errno.EIO, True), (errno.ENOSPC, True)],
)
def test_a_folder_that_cannot_be_synced_is_told_from_one_that_fails(
    tmp_path: Path, number: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network filesystems cannot sync folders. Any other failed sync may have lost data."""

    def fail(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if told:
        with pytest.raises(OSError):
            STORAGE.sync_folder(tmp_path)
    else:
        STORAGE.sync_folder(tmp_path)
    with pytest.raises(OSError):
        STORAGE.sync_file(tmp_path)


def test_what_is_not_there_need_not_be_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for _ in range(2):
        STORAGE.remove(tmp_path / "file")
    assert not list(tmp_path.iterdir())


# Files with several names


def test_a_hard_link_is_durable_and_of_the_file_itself(tmp_path: Path, done: list[str]) -> None:
    (tmp_path / "blob").write_bytes(b"weights")
    (tmp_path / "name").symlink_to("blob")
    (tmp_path / "link").write_bytes(b"another file")
    assert STORAGE.hard_link(tmp_path / "name", tmp_path / "link")
    assert (tmp_path / "link").samefile(tmp_path / "blob")
    assert not (tmp_path / "link").is_symlink()
    assert done == [f"sync {tmp_path.name}"]


def test_where_there_are_no_hard_links_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"weights")
    for number in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EIO):

        def fail(*_: Any, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", fail)
        if number == errno.EIO:
            with pytest.raises(OSError):
                STORAGE.hard_link(tmp_path / "file", tmp_path / "link")
        else:
            assert not STORAGE.hard_link(tmp_path / "file", tmp_path / "link")


def test_a_file_with_another_name_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    path = tmp_path / "link"
    path.hardlink_to(tmp_path / "model")
    with opened(path) as fd, pytest.raises(OSError) as refused:
        STORAGE.write(fd, b"x", 0)
    assert refused.value.errno == errno.EBADF
    STORAGE.create(path, 4, b"x")
    assert path.read_bytes() == b"x\0\0\0"
    path.unlink()
    path.hardlink_to(tmp_path / "model")
    STORAGE.part(path, tmp_path / "fresh")
    assert path.read_bytes() == b"weights"
    with opened(path) as fd:
        STORAGE.write(fd, b"x", 0)
    assert (tmp_path / "model").read_bytes() == b"weights"
    assert {file.name for file in tmp_path.iterdir()} == {"model", "link"}


# The system


def test_pages_are_dropped_from_the_one_that_a_range_begins_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pages are dropped from the start of the range's first page up to the range's end.

    The rest of its last page is dropped with the next range.
    """
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *args: asked.append(args))
    for offset, nbytes in [(0, 4096), (4096, 100), (4196, 8000), (100, 10)]:
        drop_from_cache(7, offset, nbytes)
    drop = os.POSIX_FADV_DONTNEED
    assert asked == [
        (7, 0, 4096, drop), (7, 4096, 100, drop), (7, 4096, 8100, drop), (7, 0, 110, drop)
    ]  # fmt: skip


def test_only_what_the_system_says_is_in_memory(tmp_path: Path) -> None:
    assert not is_in_memory(Path("/proc"))
    assert not is_in_memory(tmp_path / "nothing")
    memory = Path("/dev/shm")
    if f" {memory} tmpfs " in Path("/proc/mounts").read_text():
        assert is_in_memory(memory)
