"""Promise: a machine that was suspended just before it creates a file in a mirror's folder neither
empties nor removes the file that its successor has written meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from resumerge.mirror.stores.folder import FolderStore
from resumerge.storage import Storage

NAME = "model-00001-of-00002.safetensors"
DATA = bytes(range(256)) * 100


class Suspended(Storage):
    """A storage in which something happens before a file is created."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None
        self.removed: list[str] = []

    def begin(self, path: Path, *, exclusive: bool = False) -> int:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return super().begin(path, exclusive=exclusive)

    def remove(self, path: Path) -> None:
        self.removed.append(path.name)
        super().remove(path)


def weak(folder: Path, storage: Storage, *, rename: bool = False) -> FolderStore:
    """Return a folder in which no file can be renamed over another one.

    Without `rename` files cannot be renamed at all, and grow under their names.
    """
    store = FolderStore(folder, storage)
    store._capabilities = replace(store.capabilities, rename=rename, rename_over=False)
    return store


def upload(store: FolderStore, folder: Path) -> str:
    local = folder / "local"
    local.write_bytes(DATA)
    return store.upload(NAME, local, lambda nbytes: None)


@pytest.mark.parametrize("rename", [False, True])
@pytest.mark.parametrize("what", ["a shard", "a small file"])
def test_what_its_successor_has_written_stays(tmp_path: Path, what: str, rename: bool) -> None:
    late = Suspended()
    first, second = (weak(tmp_path / "m", storage, rename=rename) for storage in (late, Storage()))

    def write(store: FolderStore) -> object:
        if what == "a shard":
            return upload(store, tmp_path)
        return store.put_if_unchanged(NAME, DATA, None)

    seen: list[bytes] = []

    def meanwhile() -> None:
        write(second)
        seen.append(second.get(NAME))

    late.meanwhile = meanwhile
    with pytest.raises(FileExistsError):
        write(first)
    assert seen == [DATA]
    assert second.get(NAME) == DATA
    assert write(first), "it notices that it is there"
    assert second.get(NAME) == DATA
    assert NAME not in late.removed


@pytest.mark.parametrize("nbytes", [0, 1000])
def test_an_upload_goes_on_with_what_is_there(tmp_path: Path, nbytes: int) -> None:
    store = weak(tmp_path / "m", Storage())
    store.put({"a": b"1"})
    (tmp_path / "m" / NAME).write_bytes(DATA[:nbytes])
    upload(store, tmp_path)
    assert store.get(NAME) == DATA
