"""Promise: every store passes the conformance tests, and a new one is one class and a registration.

`MemoryStore`, in this file, is an example of all that is needed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from far_storage import FarStorage
from loopback_hub import Hub
from loopback_s3 import Bucket
from merging import working_in
from mirror_audit import check_mirror
from store_conformance import CHECKS, Check, Place

from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.mirror.stores import registry
from resumerge.mirror.stores.base import SMALL, Moved, Store
from resumerge.mirror.stores.folder import FolderStore
from resumerge.mirror.stores.hub import HubStore
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options

PLACES: dict[str, dict[str, bytes]] = {}


class MemoryStore(Store):
    """Files in this process's memory, by the name of a place."""

    scheme = "mem"
    example = "mem://place"
    own_files = frozenset({".made-by-mem"})
    heartbeat_seconds = 10.0

    def __init__(self, url: str) -> None:
        self.url = url
        self.files = PLACES.setdefault(url, {".made-by-mem": b""})

    @classmethod
    def open(cls, address: str, *, offline: bool = False) -> MemoryStore:
        return cls(cls.normalise(address))

    def list(self) -> dict[str, int]:
        return {name: len(data) for name, data in self.files.copy().items()}

    def get(self, name: str, most: int = SMALL) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name] if len(self.files[name]) <= most else b""

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        self.files.update(files)
        for name in remove:
            self.files.pop(name, None)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.files.setdefault(name, data) is data

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        data = path.read_bytes()
        moved(len(data))
        self.files[name] = data
        return hashlib.sha256(data).hexdigest()

    def sha256(self, name: str, moved: Moved) -> str | None:
        data = self.files.get(name)
        return None if data is None else hashlib.sha256(data).hexdigest()

    def download(self, name: str, path: Path, moved: Moved) -> None:
        data = self.get(name)
        moved(len(data))
        path.write_bytes(data)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the dummy store for one test, and delete its files afterwards."""
    monkeypatch.setitem(registry.STORES, MemoryStore.scheme, MemoryStore)
    yield
    PLACES.clear()


each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@each_check
def test_a_folder(check: Check, tmp_path: Path) -> None:
    check(Place(lambda: FolderStore(tmp_path / "mirror"), tmp_path))


@each_check
def test_a_folder_on_a_filesystem_that_can_do_little(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.stores.folder.SETTLE_SECONDS", 0.2)
    mirror = tmp_path / "mirror"
    lacks = ("rename", "sync", "sync_folder", "extend")
    storage = FarStorage(mirror, lacks=lacks, ignores_exclusive=True, watched=False)
    check(Place(lambda: FolderStore(mirror, storage), tmp_path))


@each_check
def test_a_repo_of_the_hub(check: Check, hub: Hub, tmp_path: Path) -> None:
    check(Place(lambda: HubStore("hf://org/merged"), tmp_path))


@each_check
def test_a_bucket(check: Check, bucket: Bucket, tmp_path: Path) -> None:
    check(Place(lambda: open_store(f"s3://{bucket.name}/some/prefix"), tmp_path))


@each_check
@pytest.mark.usefixtures("registered")
def test_a_store_that_was_only_registered(check: Check, tmp_path: Path) -> None:
    check(Place(lambda: MemoryStore("mem://place"), tmp_path))


RECIPE: dict[str, Any] = {
    "merge_method": "linear",
    "models": [
        {"model": "math", "parameters": {"weight": 0.6}},
        {"model": "code", "parameters": {"weight": 0.4}},
    ],
    "dtype": "float32",
}


@pytest.mark.usefixtures("registered")
def test_a_run_is_mirrored_to_a_store_that_was_only_registered(made: Path, tmp_path: Path) -> None:
    """No code but the store's class knows its scheme: neither the checks nor the engine."""
    import yaml

    config = tmp_path / "recipe.yaml"
    config.write_text(yaml.safe_dump(RECIPE))
    url, out = "mem://bench", tmp_path / "out"
    options = Options(state_dir=tmp_path / "state", shard_size=8000, mirror=url + "/")
    with working_in(made / "models"):
        result = Session(options).run(config, out)
        assert result.mirror == url
        found = check_mirror(registry.open_store(url))
        assert (found.state, dict(found.problems)) == ("finished", {})
        shards = {path.name: path.read_bytes() for path in out.glob("*.safetensors")}
        assert shards.items() <= PLACES[url].items()

        elsewhere = Options(state_dir=tmp_path / "other", bring_back=True, output=tmp_path / "back")
        back = Session(elsewhere).resume(url)
        assert back.already_done
        assert {p.name: p.read_bytes() for p in (tmp_path / "back").glob("*.safetensors")} == shards


@pytest.mark.usefixtures("registered")
def test_messages_name_every_kind_of_address() -> None:
    with pytest.raises(InputError) as refused:
        registry.open_store("ftp://server/x")
    for kind in registry.STORES.values():
        assert kind.example in str(refused.value)


def test_a_scheme_is_declared_by_its_store_alone() -> None:
    """No module but those of the Hub's store tests whether an address begins with ``hf://``."""
    package = Path(registry.__file__).parents[2]
    deciding = re.compile(r"startswith\(\"hf:|SCHEME|removeprefix\(\"hf:|== \"hf")
    found = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if deciding.search(path.read_text()) and not path.name.startswith("hub")
    ]
    assert found == ["mirror/stores/registry.py"]  # its pattern for the scheme of any address
