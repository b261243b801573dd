"""Promise: the cache is read as huggingface_hub, and programs that share its contents, leave it."""

from __future__ import annotations

import errno
import hashlib
import subprocess
from pathlib import Path

import pytest
from hub_models import ref, single
from loopback_hub import Hub

from resumerge.errors import InputError, Resumable
from resumerge.hub.cache import link_etag, remembered_commit, repo_folder
from resumerge.hub.calls import brief, explain_hub_error
from resumerge.hub.content_hash import REGULAR_LIMIT, guess_etag, is_intact
from resumerge.hub.model import cached_files
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.files import check_cached, fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model

NAME = "model.safetensors"


def test_the_etag_is_in_the_name_of_the_blob_that_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"shared by repos")
    (tmp_path / "etag").symlink_to("store")
    (tmp_path / "model.bin").symlink_to("etag")
    assert link_etag(tmp_path / "model.bin") == "etag"
    assert link_etag(tmp_path / "store") is None


@pytest.mark.parametrize(
    ("content", "sha256"),
    [
        (b"{}", False),
        (b"", False),
        (b"a" * 7999 + b"\0", True),
        (b"a" * 8000 + b"\0", False),
        (b"a" * REGULAR_LIMIT, False),
        (b"a" * (REGULAR_LIMIT + 1), True),
    ],
    ids=["text", "nothing", "binary", "binary later on", "large text", "too large for git"],
)
def test_without_a_link_the_etag_is_what_the_hub_would_give(
    content: bytes, sha256: bool, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    of_git = subprocess.run(["git", "hash-object", path], capture_output=True, text=True)
    expected = hashlib.sha256(content).hexdigest() if sha256 else of_git.stdout.strip()
    assert guess_etag(path) == expected
    assert is_intact(path, expected, len(content))
    assert not is_intact(path, expected, len(content) + 1)
    assert not is_intact(path, "0" * len(expected), len(content))
    assert is_intact(path, "no hash at all", len(content)), "only its size is known"
    assert not is_intact(path, "no hash at all", len(content) + 1)


def test_a_branch_is_remembered_by_a_commit_alone(hub: Hub) -> None:
    assert remembered_commit("org/model", "main") is None
    commit = hub.commit("org/model", single())
    open_hub_model(ref("org/model"), revision=commit)
    refs = repo_folder("org/model") / "refs"
    assert not refs.exists(), "a commit is no branch"
    open_hub_model(ref("org/model"))
    assert remembered_commit("org/model", "main") == commit
    (refs / "main").write_text(f"{commit}\n")
    assert remembered_commit("org/model", "main") == commit
    for wrong in ("main", commit[:-1], f"{commit}0", ""):
        (refs / "main").write_text(wrong)
        assert remembered_commit("org/model", "main") is None


def test_a_content_that_several_commits_have_is_listed_once(hub: Hub) -> None:
    for files in (single(), single() | {"config.json": b'{"model_type": "llama"}'}):
        hub.commit("org/model", files)
        source = open_hub_model(ref("org/model"))
        fetch(source, [*source.files, "config.json"])
    found = sorted(file.name for file in cached_files("org/model", None))
    assert found == ["config.json", "config.json", NAME]
    for revision in ("main", source.revision):
        listed = cached_files("org/model", revision)
        assert sorted(file.name for file in listed) == ["config.json", NAME]
        assert {file.revision for file in listed} == {source.revision}
    assert cached_files("org/model", "no-branch") == []


def test_a_file_that_is_known_to_be_damaged_is_not_present(hub: Hub, tmp_path: Path) -> None:
    """The header of a damaged file is not read, because the damage may be in the header."""
    metadata = MetadataCache(tmp_path / "state")
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    file = remote_file(source, NAME)
    header = single()[NAME].replace(b"down_proj", b"up___proj")
    file.blob.write_bytes(header)
    assert open_hub_model(ref("org/model"), metadata=metadata).tensors != source.tensors
    metadata.record_verdict(file.blob, file.etag, False)
    again = open_hub_model(ref("org/model"), metadata=metadata)
    assert again.tensors == source.tensors
    assert not again.files[NAME].present
    fetch(again, [NAME], metadata)
    assert file.blob.read_bytes() == single()[NAME]
    assert open_hub_model(ref("org/model"), metadata=metadata).files[NAME].present


def test_a_damage_is_told_once_each_time_and_by_its_own_number(hub: Hub, tmp_path: Path) -> None:
    """What was computed since the file was last known to be right is computed again."""
    metadata, told = MetadataCache(tmp_path / "state"), list[tuple[str, str, int]]()
    callbacks = DownloadCallbacks(
        on_event=lambda kind, model, file, damage: told.append((kind, file, damage))
    )
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    for _ in range(2):
        fetch(source, [NAME, "config.json"], metadata, callbacks)
        file = remote_file(source, NAME)
        known = file.blob.stat().st_ctime_ns
        while file.blob.stat().st_ctime_ns == known:  # some filesystems' clocks tick slowly
            file.blob.write_bytes(single(fill=1)[NAME])
        with pytest.raises(InputError, match=r"missing: model\.safetensors \(damaged"):
            fetch(source, [NAME], metadata, callbacks, offline=True)
        assert not check_cached(file, metadata, callbacks), "known, and not told again"
    first, second = metadata.damages(remote_file(source, NAME).blob, since="")
    assert told == [("source_damaged", NAME, damage.id) for damage in (first, second)]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "blob"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Data processing error: No space left on device (os error 28)"),
    ],
    ids=["disk", "quota", "xet"],
)
def test_a_full_disk_is_told_by_its_name(error: Exception) -> None:
    found = explain_hub_error(error, "org/model", None)
    assert isinstance(found, Resumable) and found.reason == "disk_full"


def test_a_cache_that_cannot_be_written_is_no_failing_network() -> None:
    found = explain_hub_error(
        PermissionError(errno.EACCES, "Permission denied", "/cache"), "org/m", None
    )
    assert isinstance(found, InputError) and "Permission denied: /cache" in str(found)
    failed = explain_hub_error(ConnectionResetError("reset"), "org/m", None)
    assert isinstance(failed, Resumable) and failed.reason == "network"
    assert explain_hub_error(KeyError("a bug"), "org/m", None) is None


def test_what_is_said_of_an_error_has_no_signature_and_one_line() -> None:
    error = ConnectionError("no answer from 'https://cdn/x?Signature=secret&Expires=1' now\nmore")
    assert brief(error) == "ConnectionError: no answer from 'https://cdn/x' now"
