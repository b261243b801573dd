"""Promise: what a run gives up in its mirror goes in an order that never leaves half a model that
loads; what is edited gets another name; what comes back is compared and durable."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash
from ledger_rows import TIME
from made_up_leases import ELSEWHERE, SECONDS
from ordered_storage import Ordered
from plain_folder import PlainFolder
from waiting import wait_until

from resumerge.engine.lifecycle.fetch_model import (
    LARGEST_RECIPE,
    PAGE,
    fetch_model,
    fetched_names,
    is_made_of,
)
from resumerge.engine.mirror_session.abandon import abandon_mirror, back_up, find_written
from resumerge.engine.mirror_session.checks import check_apart
from resumerge.engine.mirror_session.reconcile import fetch_from_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Interrupted, Resumable
from resumerge.mirror.manifest import Manifest
from resumerge.mirror.names import MANIFEST_FILE, SnapshotName, lease_name
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.recipe import parse_recipe
from resumerge.storage import Storage

SHARD = "model-00001-of-00002.safetensors"
OTHER = "model-00002-of-00002.safetensors"
SNAPSHOT = SnapshotName(1, 1, "0" * 32).name


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MirrorSession]:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", str(SECONDS))
    session = MirrorSession(str(tmp_path / "mirror"), Options(), Reporter(), StopRequest())
    yield session
    session.release()


@pytest.fixture
def plain(tmp_path: Path, mirror: MirrorSession) -> PlainFolder:
    """Replace the session's store by one that cannot rename, and return it."""
    mirror.store = PlainFolder(tmp_path / "mirror")
    return mirror.store


# Given up


def test_config_json_goes_first_then_the_manifest_before_other_metadata(
    mirror: MirrorSession,
) -> None:
    files = {"README.md": b"# a", "config.json": b"{}", SHARD: b"s", OTHER: b"t"}
    mirror.store.put({**files, f"{SHARD}.part": b"", MANIFEST_FILE: b"no JSON", SNAPSHOT: b""})
    promised = {name: (len(data), sha256(data)) for name, data in files.items()}
    promised[OTHER] = (-1, "")  # not known to be mirrored
    promised[SHARD] = (1, sha256(b"damaged since"))
    written = find_written(mirror, "run", promised)
    shards = [SHARD, f"{SHARD}.part"]
    assert written.remove == ["config.json", "README.md", *shards, MANIFEST_FILE, SNAPSHOT]
    assert written.backups == {OTHER: f"{OTHER}.kept"}
    abandon_mirror(mirror, written)
    assert set(mirror.files()) == {f"{OTHER}.kept", lease_name(2)}


@pytest.mark.parametrize(("run", "backups"), [("run", []), ("other", ["config.json"])])
def test_what_the_manifest_of_the_run_says_is_newer_than_what_is_known(
    mirror: MirrorSession, run: str, backups: list[str]
) -> None:
    """Another machine may have finished the run; the manifest of another run is ignored."""
    files = {"config.json": {"bytes": 2, "sha256": sha256(b"{}")}}
    said = {**{"run": run, "fingerprint": "0", "seed": 0, "shard_size": 1, "units": 1},
            **{"created": TIME, "attempts": [], "files": files}}  # fmt: skip
    checksum = xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())
    done = json.dumps({**said, "checksum": checksum}).encode()
    mirror.store.put({"config.json": b"{}", MANIFEST_FILE: done})
    written = find_written(mirror, "run", {"config.json": (2, sha256(b"[]"))})
    assert [*written.backups] == backups


def test_nothing_is_given_up_where_there_is_a_file_of_somebody(mirror: MirrorSession) -> None:
    mirror.store.put({"config.json": b"{}", "mine.kept": b"", "holiday.jpg": b""})
    with pytest.raises(InputError, match=r"holiday\.jpg") as refused:
        find_written(mirror, "run", {"config.json": (2, sha256(b"{}"))})
    assert "mine.kept" not in str(refused.value)


def test_who_lost_the_lease_gives_up_nothing(mirror: MirrorSession) -> None:
    lease = mirror.acquire_lease("run")
    mirror.store.put({"config.json": b"{}", lease_name(2): ELSEWHERE.as_bytes()})
    wait_until(lambda: lease.is_lost)
    with pytest.raises(Resumable, match="Another machine has taken over"):
        find_written(mirror, "run", {"config.json": (2, sha256(b"{}"))})


def test_what_cannot_be_renamed_is_copied_before_it_goes(
    mirror: MirrorSession, plain: PlainFolder
) -> None:
    plain.put({"config.json": b"mine", "other": b"stays"})
    copied: list[bool] = []

    def fails(operation: str) -> None:
        if operation == "put":
            copied.append((plain.folder / "config.json.kept").read_bytes() == b"mine")

    plain.fails = fails
    back_up(mirror, {"config.json": "config.json.kept"})
    assert copied == [True]
    plain.fails = lambda operation: None
    assert set(plain.list()) == {"config.json.kept", "other"}


def test_what_was_renamed_by_an_earlier_attempt_is_done(mirror: MirrorSession) -> None:
    mirror.store.put({"a.kept": b"mine"})
    back_up(mirror, {"a": "a.kept"})
    with pytest.raises(FileNotFoundError):
        back_up(mirror, {"b": "b.kept"})
    assert set(mirror.files()) == {"a.kept"}


# Brought back


@pytest.mark.parametrize("left", [None, b"of the kill", b"wrong", b"much longer than the shard"])
def test_what_comes_back_is_durable_before_it_has_its_name(
    mirror: MirrorSession, tmp_path: Path, left: bytes | None
) -> None:
    """A killed computation may have left any bytes under the name of the incomplete shard."""
    data, out, storage = b"right", tmp_path / "out", Ordered()
    mirror.store.put({SHARD: data})
    if left is not None:
        out.mkdir()
        (out / f"{SHARD}.partial").write_bytes(left)
    fetch_from_mirror(mirror, SHARD, sha256(data), out, storage)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {SHARD: data}
    done = [f"remove {SHARD}.partial", f"sync {SHARD}.partial", f"rename to {SHARD}"]
    assert storage.of(SHARD) == done


@pytest.mark.parametrize(("there", "what"), [(b"wrong", "damaged"), (None, "missing")])
def test_what_is_not_right_there_does_not_come_back(
    mirror: MirrorSession, tmp_path: Path, there: bytes | None, what: str
) -> None:
    mirror.store.put({SHARD: there} if there else {"another": b""})
    with pytest.raises(Resumable, match=f"{SHARD} is {what} in the mirror"):
        fetch_from_mirror(mirror, SHARD, sha256(b"right"), tmp_path / "out", Storage())
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("suffix", [".partial", ".partial.part"])
def test_a_disk_here_that_fails_is_not_the_mirror(
    mirror: MirrorSession, plain: PlainFolder, tmp_path: Path, suffix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An error of the local disk is not retried, and the incomplete file is removed."""
    monkeypatch.setattr("resumerge.mirror.stores.base.Store.patience", 0.1)
    out, tried = tmp_path / "out", []
    plain.put({SHARD: b"s"})

    def fails(name: str, path: Path, moved: object) -> None:
        tried.append(name)
        (out / f"{SHARD}{suffix}").write_bytes(b"begun")
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(out / f"{SHARD}{suffix}"))

    monkeypatch.setattr(plain, "download", fails)
    with pytest.raises(Resumable) as stopped:
        fetch_from_mirror(mirror, SHARD, sha256(b"s"), out, Storage())
    assert stopped.value.reason == "io"
    assert (tried, [*out.iterdir()]) == ([SHARD], [])


FILES = {
    **{"README.md": b"# a", "config.json": b"{}", "tokenizer.json": b"t", SHARD: b"s", OTHER: b"o"},
    "mergekit_config.yml": b"merge_method: passthrough\nmodels: [{model: a}]\n",
}


def finished(**facts: Any) -> Manifest:
    """Return the manifest of a mirror with the files of `FILES`; `facts` replace its values."""
    files = {name: (len(data), sha256(data)) for name, data in FILES.items()}
    return Manifest("run", "0" * 64, **{"files": files, **facts}, **NOTHING_ELSE)


NOTHING_ELSE: dict[str, Any] = {"created": TIME, "units": 2, "attempts": []}


def test_a_model_comes_back_with_config_json_last_and_what_is_here_stays(
    mirror: MirrorSession, tmp_path: Path
) -> None:
    """A local shard of another size is replaced; a local card stays, whatever its size."""
    out, storage = tmp_path / "out", Ordered()
    mirror.store.put(FILES)
    out.mkdir()
    here = {"tokenizer.json": b"T", "README.md": b"my own words", SHARD: b"cut off"}
    for name, data in here.items():
        (out / name).write_bytes(data)
    fetched = fetch_model(mirror, finished(), OutputPath(out), storage)
    assert fetched == ["mergekit_config.yml", SHARD, OTHER, "config.json"]
    assert storage.of("rename") == [f"rename to {name}" for name in fetched]
    found = {path.name: path.read_bytes() for path in out.iterdir()}
    assert found == {**FILES, **here, SHARD: FILES[SHARD]}
    assert fetch_model(mirror, finished(), OutputPath(out), storage) == []


def test_of_a_model_that_comes_back_the_card_alone_may_be_edited_there(
    mirror: MirrorSession, tmp_path: Path
) -> None:
    mirror.store.put({**FILES, "README.md": b"my own words", "tokenizer.json": b"T"})
    with pytest.raises(Resumable, match=r"tokenizer\.json is damaged"):
        fetch_model(mirror, finished(), OutputPath(tmp_path / "out"), Storage())
    assert (tmp_path / "out" / "README.md").read_bytes() == b"my own words"
    assert not (tmp_path / "out" / "config.json").exists()


def test_what_comes_back_has_to_fit_in_whole_pages_and_what_is_here_needs_none(
    mirror: MirrorSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    mirror.store.put(FILES)
    out.mkdir()
    (out / SHARD).write_bytes(FILES[SHARD])
    monkeypatch.setattr("resumerge.engine.lifecycle.fetch_model.free_bytes", lambda path: free)
    free = (len(FILES) - 1) * PAGE - 1
    with pytest.raises(Resumable) as stopped:
        fetch_model(mirror, finished(), OutputPath(out), Storage())
    assert stopped.value.reason == "disk_full"
    assert [path.name for path in out.iterdir()] == [SHARD]
    free += 1
    assert len(fetch_model(mirror, finished(), OutputPath(out), Storage())) == len(FILES) - 1


def test_what_was_copied_before_or_begun_is_no_file_of_others(tmp_path: Path) -> None:
    for name, data in {SHARD: b"s", OTHER: b"longer", "README.md": b"mine"}.items():
        (tmp_path / name).write_bytes(data)
    begun = {f"{name}.partial" for name in FILES}
    assert fetched_names(finished(), OutputPath(tmp_path)) == {SHARD, "README.md", *begun}


@pytest.mark.parametrize(
    ("options", "facts", "made"),
    [
        ({}, {}, True),
        ({"seed": 0, "shard_size": 9000}, {"seed": 0, "shard_size": 9000}, True),
        ({}, {"seed": 5, "shard_size": 9000}, True),
        ({"seed": 0}, {"seed": 5}, False),
        ({"seed": 0}, {"seed": None}, False),
        ({"shard_size": 9000}, {"shard_size": 8000}, False),
    ],
)
def test_a_model_is_of_the_options_that_are_given(
    mirror: MirrorSession, options: dict[str, int], facts: dict[str, int], made: bool
) -> None:
    """An option that is not given may have any value in the model's run."""
    mirror.store.put(FILES)
    recipe = parse_recipe("# the same\nmodels:\n- model: a\nmerge_method: passthrough\n")
    assert is_made_of(finished(**facts), recipe, Options(**options), mirror) is made


@pytest.mark.parametrize("file", ["stages/first/config.json", "stages/second/config.json"])
def test_a_model_without_a_stage_that_is_to_be_kept_is_another(
    mirror: MirrorSession, file: str
) -> None:
    mirror.store.put(FILES)
    recipe = parse_recipe(FILES["mergekit_config.yml"].decode())
    facts = {name: (len(data), sha256(data)) for name, data in {**FILES, file: b"{}"}.items()}
    options = Options(keep=["first"])
    assert is_made_of(finished(files=facts), recipe, options, mirror) is ("first" in file)


@pytest.mark.parametrize(
    "there",
    [
        FILES["mergekit_config.yml"].replace(b"a}", b"b}"),
        FILES["mergekit_config.yml"] + b"# edited",
    ],
)
def test_a_model_is_of_the_recipe_that_it_names(mirror: MirrorSession, there: bytes) -> None:
    """A recipe whose hash is not that of the manifest does not say what the model was made of."""
    data = FILES["mergekit_config.yml"]
    mirror.store.put({**FILES, "mergekit_config.yml": there})
    recipe = parse_recipe(data.decode())
    assert not is_made_of(finished(), recipe, Options(), mirror)
    said = {"mergekit_config.yml": (len(there), sha256(there))}
    same = there.startswith(data)
    assert is_made_of(finished(files=said), recipe, Options(), mirror) is same
    for files in ({}, {"mergekit_config.yml": (LARGEST_RECIPE + 1, sha256(there))}):
        assert not is_made_of(finished(files=files), recipe, Options(), mirror)


# One command's use of a mirror


def test_a_signal_stops_what_moves_bytes(tmp_path: Path) -> None:
    beats: list[None] = []

    class Beating(Reporter):
        def heartbeat(self) -> None:
            beats.append(None)

    stop = StopRequest()
    session = MirrorSession(str(tmp_path / "mirror"), Options(), Beating(), stop)
    session.moved(0)
    assert len(beats) == 1
    stop.signum = 15
    with pytest.raises(Interrupted):
        session.moved(0)


def test_a_lease_is_acquired_once_and_anew_after_its_release(mirror: MirrorSession) -> None:
    first = mirror.acquire_lease("run")
    assert mirror.acquire_lease("run") is first
    mirror.release()
    assert mirror.acquire_lease("run").token == first.token + 1


@pytest.mark.parametrize(
    ("out", "apart"),
    [
        ("mirror", False),
        ("mirror/out", False),
        ("mirror/out.safetensors", False),
        (".", False),
        ("mirror2", True),
        ("out", True),
        ("out.safetensors", True),
    ],
)
def test_output_and_mirror_do_not_contain_each_other(
    mirror: MirrorSession, tmp_path: Path, out: str, apart: bool
) -> None:
    assert (not check_apart(OutputPath(tmp_path / out), mirror)) is apart
