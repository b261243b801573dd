"""Promise: a file that others wrote is refused, by name, before it fills the memory or hangs.

A sparse file of gigabytes costs nothing to make, nor does JSON of millions of empty lists, nor a
named pipe that nobody writes to.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import pytest
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model

from resumerge.engine.checks.drift import check_recipe_drift
from resumerge.engine.context import RunContext
from resumerge.engine.recovery.ownership import has_checksum
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.lock import LOCK_FILE, lock_holder, run_lock
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.hub.cache import remembered_commit, repo_folder
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.methods.loading import methods_in_file
from resumerge.mirror.manifest import read_manifest
from resumerge.mirror.stores.folder import FolderStore
from resumerge.options import Options
from resumerge.recipe import load_recipe
from resumerge.recipe.references import read_reference
from resumerge.remote.metadata_cache import DATABASE, MetadataCache
from resumerge.sources.adapter_programs.config import parse_adapter_config
from resumerge.sources.formats.safetensors import Safetensors
from resumerge.sources.index import ADAPTER
from resumerge.sources.json_object import MOST_VALUES
from resumerge.sources.local import open_local
from resumerge.storage import Storage
from resumerge.tokenizers.vocabulary import read_vocabulary

HUGE = 3 << 30
SHARD = "model-00001-of-00001.safetensors"
SECONDS = 20
MOST_MEMORY = 300 << 20
"""Bytes: several times what the largest file that is read can take, and a tenth of `HUGE`."""


class Hangs(BaseException):
    """The exception for a call that takes too long; handlers of `Exception` do not catch it."""


@contextmanager
def bounded() -> Iterator[None]:
    """Yield, and fail if the body takes too much time or memory of Python and its libraries."""

    def hangs(signum: int, frame: FrameType | None) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    tracemalloc.start(1)
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sparse(path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(HUGE)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def many_values(path: Path) -> None:
    path.write_text('{"a": [' + "[]," * (4 << 20) + "[]]}")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model in one shard with an index, a tokenizer, and an adapter beside it."""
    place = tmp_path_factory.mktemp("models") / "m"
    write_model(place, random_tensors(llama_shapes(LLAMA), seed=0))
    weight_map = dict.fromkeys(llama_shapes(LLAMA), SHARD)
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    facts = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []}
    (place / "tokenizer.json").write_text(json.dumps(facts))
    (place / "tokenizer_config.json").write_text("{}")
    (place / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (place / "model.safetensors").rename(place / SHARD)
    (place / "adapter_model.safetensors").write_bytes((place / SHARD).read_bytes())
    return place


def read_all(place: Path) -> None:
    """Open a folder as a model, with its tokenizer, and as an adapter."""
    source = open_local(read_reference(str(place)))
    read_vocabulary(source)
    adapter = open_local(read_reference(str(place)), contents=ADAPTER)
    parse_adapter_config(adapter.config, str(place))


CONFIGS = ["config.json", "model.safetensors.index.json", "adapter_config.json"]
HARMS = [*itertools.product(CONFIGS, [sparse, pipe, folder, many_values])]
HARMS += [("tokenizer.json", sparse), ("tokenizer.json", many_values)]  # another kind is no file


@pytest.mark.parametrize(("name", "harm"), HARMS)
def test_a_model_is_refused_with_the_name_of_its_file(
    model: Path, tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    place = Path(shutil.copytree(model, tmp_path / "m"))
    read_all(place)
    harm(place / name)
    with bounded(), pytest.raises(InputError, match=name):
        read_all(place)


def test_a_header_of_millions_of_values_is_refused() -> None:
    raw = b'{"a": [' + b"[]," * (MOST_VALUES // 2) + b"[]]}"
    data = len(raw).to_bytes(8, "little") + raw
    with bounded(), pytest.raises(InputError, match="values"):
        Safetensors().read_header(
            lambda begin, end: data[begin:end], size=len(data), file="a", where="a"
        )


@pytest.mark.parametrize("harm", [sparse, pipe, folder])
def test_a_recipe_or_a_file_of_methods_is_refused(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    harm(path)
    for read in (load_recipe, methods_in_file):
        with bounded(), pytest.raises(InputError, match="file"):
            read(path)  # type: ignore[operator]


@pytest.mark.parametrize("harm", [sparse, pipe])
def test_a_recipe_that_was_edited_into_that_is_left_alone(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "recipe.yaml"
    harm(path)
    text = "merge_method: linear\nmodels: [{model: a, parameters: {weight: 1}}]"
    record = {"config_path": str(path), "config_text": text, "output": "out", "id": "a"}
    context = RunContext(
        Options(), Reporter(), Storage(), StopRequest(), RunStore(tmp_path / "state")
    )
    with bounded():
        assert check_recipe_drift(context, record, None, replaced=False).text == text


@pytest.mark.parametrize("harm", [sparse, pipe])
def test_the_state_of_others_is_no_trap(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """A lock, a ledger and a ledger's journal are read or refused within the bounds."""
    with run_lock(tmp_path, "a"):
        os.truncate(tmp_path / LOCK_FILE, HUGE)
        with bounded():
            assert lock_holder(tmp_path) == {}
    harm(tmp_path / LOCK_FILE)
    with bounded():
        assert lock_holder(tmp_path) is None
    Ledger.create(tmp_path / "ledger.db").close()
    for suffix in ("-journal", "")[harm is sparse :]:  # a journal of zeros is none
        harm(tmp_path / f"ledger.db{suffix}")
        for read_only in (True, False):
            with bounded(), pytest.raises(sqlite3.DatabaseError):
                Ledger(tmp_path / "ledger.db", read_only=read_only).events.all()
        (tmp_path / f"ledger.db{suffix}").unlink()
        Ledger.create(tmp_path / "ledger.db").close()


@pytest.mark.parametrize("harm", [sparse, pipe])
def test_a_mirror_and_the_cache_are_no_traps(
    tmp_path: Path, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".resumerge").mkdir()
    harm(tmp_path / ".resumerge/done.json")
    with bounded():
        assert read_manifest(FolderStore(tmp_path)) is None
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    refs = repo_folder("org/name") / "refs"
    refs.mkdir(parents=True)
    harm(refs / "main")
    with bounded():
        assert remembered_commit("org/name", "main") is None
    harm(tmp_path / "config.json")
    if harm is sparse:
        os.truncate(tmp_path / "config.json", MOST_MEMORY)  # it is read whole, piece by piece
    with bounded():
        assert not has_checksum(tmp_path / "config.json", "0" * 32)


@pytest.mark.parametrize(
    "row", ["null", "[]", "5", '{"a": 5}', '{"a": ["x", "e"]}', '{"a": [5, 5]}', "{", "[" * 10**5]
)
def test_metadata_of_hub_files_that_makes_no_sense_is_not_known(tmp_path: Path, row: str) -> None:
    cache = MetadataCache(tmp_path)
    cache.store_listing("org/name", "c", {"a": (5, "e")})
    assert cache.listing("org/name", "c") == {"a": (5, "e")}
    cache._write("UPDATE listings SET files = ?", [row])
    cache._write("INSERT INTO headers VALUES ('e', 5)", [])
    assert cache.listing("org/name", "c") == {}
    assert cache.header("e") is None


def test_a_damaged_schema_of_that_metadata_is_made_anew(tmp_path: Path) -> None:
    cache = MetadataCache(tmp_path)
    cache.store_header("e", b"1")
    cache.close()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("PRAGMA writable_schema = 1")
        db.execute("UPDATE sqlite_master SET sql = CAST(x'4352454154452081' AS TEXT)")
    assert cache.header("e") is None
    cache.store_header("e", b"2")
    assert cache.header("e") == b"2"


def test_a_file_is_read_up_to_its_bound_and_no_byte_longer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(path)
    assert read_foreign(path, 5) == read_foreign(tmp_path / "link", 6) == b"12345"
    with pytest.raises(UnfitFile, match="5 bytes, more than the limit of 4"):
        read_foreign(path, 4)
    path.write_bytes(b"")
    assert read_foreign(path, 0) == b""


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in [
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "a named pipe"),
        (Path(os.devnull), "a device"),
    ]:
        with bounded(), pytest.raises(UnfitFile, match=f"{kind}, not a file"):
            read_foreign(path, 100)
    with pytest.raises(FileNotFoundError):
        read_foreign(tmp_path / "nothing", 100)
