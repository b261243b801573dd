"""Promise: what a folder has been given is on its disk, content and name, when the call returns."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from resumerge.mirror.companions import upload_companions
from resumerge.mirror.conflicts import ConflictResolver
from resumerge.mirror.stores.folder import FolderStore
from resumerge.storage import Storage


class Watched(Storage):
    """A storage that knows which names and contents are not durable yet."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[Path] = set()
        self.written: set[int] = set()

    def begin(self, path: Path, *, exclusive: bool = False) -> int:
        self.names.add(path.parent)
        return super().begin(path, exclusive=exclusive)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self.written.add(os.fstat(fd).st_ino)
        super().write(fd, data, offset)

    def sync_data(self, fd: int) -> None:
        self.written.discard(os.fstat(fd).st_ino)
        super().sync_data(fd)

    def replace(self, source: Path, target: Path) -> None:
        is_durable = source.stat().st_ino not in self.written
        assert is_durable or "probe" in source.name, f"{target} has its name before its content"
        self.names.add(target.parent)
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        assert "old" not in path.name or not self.names, "what takes its place is not durable yet"
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        self.names.discard(path)
        super().sync_folder(path)


def upload(store: FolderStore) -> None:
    local = store.folder.parent / "local"
    local.write_bytes(bytes(300_000))
    store.upload("model.safetensors", local, lambda nbytes: None)


def lacking(lacks: list[str], store: FolderStore) -> FolderStore:
    store._capabilities = replace(store.capabilities, **dict.fromkeys(lacks, False))
    return store


@pytest.mark.parametrize(
    "given",
    [
        upload,
        lambda store: store.put({"README.md": b"a", ".resumerge/done.json": b"{}"}),
        lambda store: store.put({"old": b"other"}),
        lambda store: store.put_if_absent(".resumerge/lease-000001.json", b"{}"),
        lambda store: store.rename("old", "new"),
    ],
    ids=["upload", "put", "replace", "put if absent", "rename"],
)
@pytest.mark.parametrize("lacks", [[], ["rename_over"], ["rename", "rename_over"], ["exclusive"]])
def test_it_is_durable(
    given: Callable[[FolderStore], object], lacks: list[str], tmp_path: Path
) -> None:
    storage = Watched()
    store = lacking(lacks, FolderStore(tmp_path / "mirror", storage))
    store.put({"old": b"one"})
    storage.names.clear()
    storage.written.clear()
    given(store)
    assert not storage.names
    assert not storage.written


def test_of_a_large_upload_no_more_waits_for_the_disk_than_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would otherwise buffer as much of a shard as there is memory."""
    monkeypatch.setattr("resumerge.mirror.stores.folder.SYNC_BYTES", 2 << 20)
    waiting, most = 0, 0

    class Buffering(Storage):
        def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            nonlocal waiting, most
            waiting += len(data)
            most = max(most, waiting)
            super().write(fd, data, offset)

        def sync_data(self, fd: int) -> None:
            nonlocal waiting
            waiting = 0
            super().sync_data(fd)

    (tmp_path / "local").write_bytes(bytes(9 << 20))
    store = FolderStore(tmp_path / "mirror", Buffering())
    assert store.capabilities.sync
    waiting = most = 0
    store.upload("model.safetensors", tmp_path / "local", lambda nbytes: None)
    assert most == 2 << 20
    assert waiting == 0


@pytest.mark.parametrize("how", ["upload", "put", "rename"])
def test_what_the_disk_changed_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    class Lying(Storage):
        lies = False

        def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            super().write(fd, b"?" * len(data) if self.lies else data, offset)

    storage = Lying()
    store = lacking(
        ["rename", "rename_over"] * (how == "rename"), FolderStore(tmp_path / "m", storage)
    )
    store.put({"old": b"one"})
    (tmp_path / "local").write_bytes(bytes(300))
    storage.lies = True
    do: dict[str, Callable[[], object]] = {
        "upload": lambda: store.upload("a.safetensors", tmp_path / "local", lambda nbytes: None),
        "put": lambda: store.put({"new": b"one"}, ["old"]),
        "rename": lambda: store.rename("old", "new"),
    }
    with pytest.raises(OSError, match="differs from the original"):
        do[how]()
    assert store.get("old") == b"one"
    storage.lies = False
    do[how]()
    assert set(store.list()) == {"upload": {"old", "a.safetensors"}}.get(how, {"new"})
    assert store.get("new" if how != "upload" else "old") == b"one"


def test_what_is_replaced_is_away_at_no_moment_where_that_can_be(tmp_path: Path) -> None:
    """A reader, or the successor of a killed machine, finds the old file or the new one."""

    class Present(Storage):
        def remove(self, path: Path) -> None:
            assert path.name not in files
            super().remove(path)

        def begin(self, path: Path, *, exclusive: bool = False) -> int:
            assert path.name not in files or not path.exists()
            return super().begin(path, exclusive=exclusive)

    files, local = {"config.json", "a.safetensors"}, tmp_path / "local"
    store = FolderStore(tmp_path / "mirror", Present())
    for size in (3000, 2000):
        local.write_bytes(bytes(size))
        store.upload("a.safetensors", local, lambda nbytes: None)
        store.put({"config.json": bytes(size)})
    assert {name: store.list()[name] for name in files} == dict.fromkeys(files, 2000)


def test_a_small_file_is_away_at_no_moment_though_none_can_be_renamed_over(
    tmp_path: Path,
) -> None:
    """A machine that finds no lease would acquire one."""

    class Present(Storage):
        def remove(self, path: Path) -> None:
            assert path.name != "lease"
            super().remove(path)

    store = lacking(["rename_over"], FolderStore(tmp_path / "mirror", Present()))
    for data in (b"one", b"two"):
        store.put({"lease": data})
        assert store.get("lease") == data


def test_what_was_wrong_once_is_sent_anew_and_then_believed(tmp_path: Path) -> None:
    """A damaged shard is sent again by the next upload, and not by the one after that."""
    local = tmp_path / "local"
    local.write_bytes(bytes(3000))
    store = FolderStore(tmp_path / "mirror")
    upload = lambda: store.upload("a.safetensors", local, lambda nbytes: None)  # noqa: E731
    upload()
    (store.folder / "a.safetensors").write_bytes(b"?" * 3000)
    upload()
    assert store.get("a.safetensors") == bytes(3000)
    number = (store.folder / "a.safetensors").stat().st_ino
    upload()
    assert (store.folder / "a.safetensors").stat().st_ino == number, "it is not sent again"


def test_a_link_where_an_upload_goes_is_not_followed(tmp_path: Path) -> None:
    """An upload through the link would overwrite a file of another folder."""
    local, other = tmp_path / "local", tmp_path / "other"
    local.write_bytes(bytes(3000))
    store = FolderStore(tmp_path / "mirror")
    store.put({})
    for name in ("a.safetensors", "config.json"):
        other.write_bytes(b"mine")
        (store.folder / f"{name}.part").parent.mkdir(exist_ok=True)
        (store.folder / f"{name}.part").symlink_to(other)
    store.upload("a.safetensors", local, lambda nbytes: None)
    store.put({"config.json": b"{}"})
    assert other.read_bytes() == b"mine"
    assert set(store.list()) >= {"a.safetensors", "config.json"}
    assert (store.get("config.json"), store.get("a.safetensors")) == (b"{}", bytes(3000))


def test_a_link_in_the_folder_is_listed_as_what_it_is(tmp_path: Path) -> None:
    """The listing shows the link itself: its target is no file of the mirror, and may not exist."""
    store, other = FolderStore(tmp_path / "mirror"), tmp_path / "other"
    store.put({"a": b"1"})
    other.write_bytes(bytes(5000))
    for name, target in (("a.safetensors", other), ("b.safetensors", tmp_path / "nothing")):
        (store.folder / name).symlink_to(target)
        assert store.list()[name] == len(str(target))
        assert store.get(name) == b"" and store.sha256(name, lambda nbytes: None) is None


def test_a_folder_that_is_gone_is_no_empty_one(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "mirror")
    assert store.list() == {}, "it does not exist yet"
    store.put({"a": b"1"})
    store.folder.rename(tmp_path / "unmounted")
    with pytest.raises(OSError, match="the folder is gone"):
        store.list()
    store.folder.write_bytes(b"a file")
    with pytest.raises(OSError, match="the folder is gone"):
        FolderStore(store.folder).list()


def test_a_companion_that_is_a_link_arrives_as_the_file_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a model in the Hub's cache are links."""
    monkeypatch.setattr("resumerge.mirror.companions.SMALL", 100)
    blob, link = tmp_path / "blob", tmp_path / "tokenizer.json"
    blob.write_bytes(bytes(1000))
    link.symlink_to(blob)
    store = FolderStore(tmp_path / "mirror")
    conflicts = ConflictResolver(store, lambda name, now: None, lambda nbytes: None)
    sent = upload_companions(store, [(link.name, link)], conflicts, lambda nbytes: None)
    assert list(sent) == [(link.name, 1000, hashlib.sha256(bytes(1000)).hexdigest())]
    assert store.get(link.name) == bytes(1000)


def test_a_file_that_differs_is_written_again_and_no_other(tmp_path: Path) -> None:
    """A file of the same size is compared by its content."""
    store = FolderStore(tmp_path / "mirror")
    files = {"generation_config.json": b"{}", "index.json": b"{1}", "config.json": b"{22}"}

    def sent() -> list[tuple[str, int, str]]:
        conflicts = ConflictResolver(store, lambda name, now: None, lambda nbytes: None)
        return list(upload_companions(store, files.items(), conflicts, lambda nbytes: None))

    sent()
    kept = store.folder / "generation_config.json"
    before = kept.stat().st_ino
    files |= {"index.json": b"{3}", "config.json": b"{444}"}
    assert sent() == [(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in files.items()]
    assert {name: store.get(name) for name in files} == files
    assert kept.stat().st_ino == before
