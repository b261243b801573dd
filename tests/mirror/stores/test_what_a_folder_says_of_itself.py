"""Promise: a folder that cannot be a mirror now says so, and what it is asked, it answers truly."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from store_conformance import Stopped
from waiting import wait_until

from resumerge.mirror.stores.base import METADATA
from resumerge.mirror.stores.folder import FolderStore
from resumerge.mirror.stores.registry import has_scheme, is_mirror_url, normalise, open_store
from resumerge.storage import Storage

NAME = "a.safetensors"


def ignore(nbytes: int) -> None:
    pass


def weak(folder: Path, *lacks: str) -> FolderStore:
    store = FolderStore(folder)
    store._capabilities = replace(store.capabilities, **dict.fromkeys(lacks, False))
    return store


# Its address


def test_an_address_is_that_of_the_folder_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert normalise("mirror/") == open_store("mirror").url == str(tmp_path / "mirror")
    assert normalise("~/mirror") == open_store("~/mirror").url == str(tmp_path / "home/mirror")
    assert normalise("hf://org/name/") == "hf://org/name"
    assert normalise("s3://bucket/p/") == "s3://bucket/p"


def test_a_folder_is_known_as_a_mirror_by_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    assert not is_mirror_url(str(mirror))
    FolderStore(mirror).put({"a": b"1"})
    assert is_mirror_url(str(mirror)) and is_mirror_url("~/mirror")
    for text in ("a\0b", "~nobody-has-this-name/x", "x" * 5000, ""):
        assert not is_mirror_url(text)
    assert is_mirror_url("hf://org/name") and not is_mirror_url("hf:org/name")
    assert [has_scheme(text) for text in ("s3://b/p", "ftp://x", "a/b", "")] == [True] + [False] * 3


@pytest.mark.parametrize("kind", ["a file", "a link to nothing", "a link to a file"])
def test_what_is_no_folder_is_a_problem_and_no_empty_mirror(tmp_path: Path, kind: str) -> None:
    store, file = FolderStore(tmp_path / "mirror"), tmp_path / "file"
    if kind == "a file":
        store.folder.write_bytes(b"")
    else:
        store.folder.symlink_to(file)
    if kind == "a link to a file":
        file.write_bytes(b"")
    [problem] = store.check_address()
    assert problem.found == "something that is not a folder"
    with pytest.raises(OSError, match="the folder is gone"):
        store.list()


def test_a_folder_whose_parent_is_missing_is_a_problem(tmp_path: Path) -> None:
    [problem] = FolderStore(tmp_path / "drive" / "mirror").check_address()
    assert problem.found == f"no folder {tmp_path / 'drive'}"
    assert FolderStore(tmp_path / "mirror").check_address() == []
    assert FolderStore(tmp_path).check_address() == []


# Its files


def test_a_folder_in_it_that_cannot_be_read_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, scandir = FolderStore(tmp_path / "mirror"), os.scandir
    store.put({"inside/a": b"1", "b": b"2"})

    def denied(path: Any) -> Any:
        if str(path).endswith("inside"):
            raise PermissionError(13, "denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(PermissionError):
        store.list()


def test_a_file_that_is_deleted_while_the_folder_is_listed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, walk = FolderStore(tmp_path / "mirror"), os.walk
    store.put({"a": b"1", "b": b"2"})

    def meanwhile(*given: Any, **more: Any) -> Any:
        for found in walk(*given, **more):
            (store.folder / "a").unlink(missing_ok=True)
            yield found

    monkeypatch.setattr(os, "walk", meanwhile)
    assert store.list() == {"b": 1}


def test_its_clock_is_that_of_its_filesystem(tmp_path: Path) -> None:
    """The clock of a network drive is the server's."""

    class Elsewhere(Storage):
        def begin(self, path: Path, *, exclusive: bool = False) -> int:
            fd = super().begin(path, exclusive=exclusive)
            os.utime(path, (1e9, 1e9))
            return fd

    store = FolderStore(tmp_path / "mirror", Elsewhere())
    assert store.now() == datetime.fromtimestamp(1e9, UTC)
    assert store.list() == {}, "the file that told the time is gone"


def test_where_creation_is_not_exclusive_writers_wait_for_each_other(tmp_path: Path) -> None:
    assert FolderStore(tmp_path / "a").settle_seconds == 0
    store = weak(tmp_path / "b", "exclusive")
    assert store.settle_seconds > 0
    assert store.put_if_absent("a", b"1") and not store.put_if_absent("a", b"2")
    assert store.get("a") == b"1"


def test_a_pipe_is_not_waited_for_and_a_link_not_followed(tmp_path: Path) -> None:
    store, other = FolderStore(tmp_path / "mirror"), tmp_path / "other"
    store.put({"a": b"1"})
    other.write_bytes(b"mine")
    (store.folder / "link").symlink_to(other)
    os.mkfifo(store.folder / "pipe")
    answers: list[tuple[bytes, str | None]] = []

    def read() -> None:
        for name in ("link", "pipe"):
            answers.append((store.get(name), store.sha256(name, ignore)))

    reader = Thread(target=read, daemon=True)  # a pipe that is waited for has no end
    reader.start()
    wait_until(lambda: not reader.is_alive())
    assert answers == [(b"", None)] * 2
    with pytest.raises(OSError):
        store.download("link", tmp_path / "here", ignore)


# Uploads and renames


def test_who_may_not_write_begins_no_upload(tmp_path: Path) -> None:
    """The callback is called before a file is created, which would stay."""
    local = tmp_path / "local"
    local.write_bytes(b"data")

    def lost(nbytes: int) -> None:
        raise Stopped

    store = FolderStore(tmp_path / "mirror")
    with pytest.raises(Stopped):
        store.upload(NAME, local, lost)
    assert store.list() == {}


@pytest.mark.parametrize("lacks", [(), ("rename_over",), ("rename", "rename_over"), ("extend",)])
@pytest.mark.parametrize("begun", [b"da", b"data", b"data and more", b"xx", b"xxxx"])
def test_what_was_begun_is_continued_or_replaced(
    tmp_path: Path, lacks: tuple[str, ...], begun: bytes
) -> None:
    """A second call is needed only if the incomplete file is found to be another file's."""
    local = tmp_path / "local"
    local.write_bytes(b"data")
    store = weak(tmp_path / "mirror", *lacks)
    (store.folder / (NAME if "rename" in lacks else f"{NAME}.part")).write_bytes(begun)
    is_useless = "extend" in lacks and len(begun) != 4
    if begun.startswith(b"x") and not is_useless:
        with pytest.raises(OSError, match="differs from the original"):
            store.upload(NAME, local, ignore)
    store.upload(NAME, local, ignore)
    assert {name: store.get(name) for name in store.list()} == {NAME: b"data"}


def test_without_renames_a_file_is_copied_over_what_an_earlier_attempt_left(
    tmp_path: Path,
) -> None:
    store = weak(tmp_path / "mirror", "rename", "rename_over")
    store.put({"a": b"mine"})
    (store.folder / "a.kept").write_bytes(b"mi")
    assert store.rename("a", "a.kept")
    assert {name: store.get(name) for name in store.list()} == {"a.kept": b"mine"}
    (store.folder / "link").symlink_to(tmp_path)
    assert not store.rename("link", "link.kept"), "it is no file"
    assert (store.folder / "link").is_symlink()


@pytest.mark.parametrize("change", [Path.touch, lambda path: path.write_bytes(b"their")])
def test_a_file_that_another_machine_wrote_meanwhile_is_not_removed(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    """The filesystem of this test cannot rename a file over another one."""

    class Late(Storage):
        def sync_data(self, fd: int) -> None:
            super().sync_data(fd)
            if writing:
                fresh = store.folder / "fresh"
                change(fresh)
                fresh.replace(store.folder / "a")

    writing: list[None] = []
    store = FolderStore(tmp_path / "mirror", Late())
    store._capabilities = replace(store.capabilities, rename_over=False)
    local = tmp_path / "local"
    local.write_bytes(b"mine!")
    (store.folder / "a").write_bytes(b"older")
    writing.append(None)
    with pytest.raises(FileExistsError):
        store.upload("a", local, ignore)
    assert (store.folder / "a").read_bytes() in (b"", b"their")


def test_metadata_is_in_a_folder_of_its_own(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "mirror")
    assert store.put_if_absent(f"{METADATA}/lease", b"1")
    assert not store.put_if_absent(f"{METADATA}/lease", b"2")
    assert (store.folder / METADATA / "lease").read_bytes() == b"1"
