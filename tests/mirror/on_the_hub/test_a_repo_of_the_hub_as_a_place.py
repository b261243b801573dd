"""What a place promises, kept by a repo of the Hub: files come and go, in single steps."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loopback_hub import Hub
from repo_of_the_hub import REPO, SHARD, URL, commits, nothing, shard

from resumerge.errors import InputError
from resumerge.mirror.stores.base import StoreError
from resumerge.mirror.stores.hub import HubStore
from resumerge.mirror.stores.hub_repo import HubRepo
from resumerge.mirror.stores.upload_reader import REPORT_BYTES


@pytest.fixture
def store(hub: Hub) -> HubStore:
    """Return the store of a repo that does not exist yet."""
    return HubStore(URL)


def test_the_repo_is_created_private_on_the_first_change(hub: Hub, store: HubStore) -> None:
    assert store.list() == {}
    with pytest.raises(FileNotFoundError):
        store.get("config.json")
    assert hub.repos == {}
    store.put({"a": b"1"})
    assert hub.repos[REPO].private
    assert store.list().keys() == {".gitattributes", "a"}


def test_a_repo_that_is_there_is_kept_as_it_is(hub: Hub, store: HubStore) -> None:
    hub.commit(REPO, {"README.md": b"# mine"})
    store.put({"a": b"1"})
    assert not hub.repos[REPO].private
    assert hub.contents(REPO) == {"README.md": b"# mine", "a": b"1"}


def test_a_repo_that_is_gone_is_not_taken_for_an_empty_one(hub: Hub, store: HubStore) -> None:
    store.put({"a": b"1"})
    del hub.repos[REPO]
    for ask in (store.list, lambda: store.get("a"), lambda: store.sha256("a", nothing)):
        with pytest.raises(StoreError) as caught:
            ask()
        assert caught.value.denied


@pytest.mark.parametrize("status", [401, 403])
def test_a_repo_that_may_not_be_read_now_is_not_taken_for_an_empty_one(
    hub: Hub, store: HubStore, status: int
) -> None:
    """The token may have expired, and the repo may contain a run of another machine."""
    hub.commit(REPO, {"config.json": b"{}"})
    hub.fail("/api/models", status=status, times=None)
    for ask in (store.list, lambda: store.sha256("config.json", nothing)):
        with pytest.raises(StoreError) as caught:
            ask()
        assert caught.value.denied


def test_small_files_come_and_go_in_one_commit(hub: Hub, store: HubStore) -> None:
    store.put({".resumerge/a": b"old", "config.json": b"{}"})
    store.put({".resumerge/b": b"new"}, remove=[".resumerge/a"])
    assert hub.contents(REPO) == {".resumerge/b": b"new", "config.json": b"{}"}
    assert commits(hub) == 2
    assert store.get(".resumerge/b") == b"new"
    assert store.list() == {
        ".gitattributes": len(store.get(".gitattributes")),
        ".resumerge/b": 3,
        "config.json": 2,
    }
    with pytest.raises(FileNotFoundError):
        store.get(".resumerge/a")


def test_what_is_gone_already_may_be_removed_and_what_is_there_written_again(
    hub: Hub, store: HubStore
) -> None:
    store.put({"a": b"1"})
    store.put({"a": b"1"}, remove=["never/there"])
    assert hub.contents(REPO) == {"a": b"1"}
    assert commits(hub) == 1


@pytest.mark.parametrize("binary_is_large", [False, True])
def test_snapshots_may_be_large_files_for_the_hub(
    hub: Hub, store: HubStore, binary_is_large: bool
) -> None:
    hub.binary_is_large, data = binary_is_large, b"SQLite format 3\0" + bytes(5000)
    store.put({".resumerge/ledger.db": data})
    assert hub.repos[REPO].files()[".resumerge/ledger.db"].lfs == binary_is_large
    assert store.get(".resumerge/ledger.db") == data


@pytest.mark.parametrize("part_bytes", [None, 100_000])
def test_a_shard_is_committed_together_with_what_is_written_after_it(
    hub: Hub, store: HubStore, tmp_path: Path, part_bytes: int | None
) -> None:
    hub.part_bytes = part_bytes
    path, moved = shard(tmp_path), []
    sha256 = store.upload(SHARD, path, moved.append)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sum(moved) == 300_000
    assert store.list()[SHARD] == 300_000
    assert commits(hub) == 0
    store.put({".resumerge/ledger.db": b"names the shard"})
    assert hub.contents(REPO) == {
        SHARD: path.read_bytes(),
        ".resumerge/ledger.db": b"names the shard",
    }
    assert commits(hub) == 1
    assert store.sha256(SHARD, nothing) == sha256


def test_whoever_looks_at_the_place_sees_what_was_uploaded(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    sha256 = store.upload(SHARD, shard(tmp_path), nothing)
    assert store.sha256(SHARD, nothing) == sha256
    store.download(SHARD, tmp_path / "back", nothing)
    second = SHARD.replace("00001-of", "00002-of")
    store.upload(second, shard(tmp_path, seed=1), nothing)
    assert store.get(second) == (tmp_path / "shard-1.safetensors").read_bytes()
    assert commits(hub) == 2


def test_a_file_that_is_small_for_the_hub_may_be_uploaded_too(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"{}" * 50_000)
    sha256 = store.upload("tokenizer.json", path, nothing)
    assert store.sha256("tokenizer.json", nothing) == sha256
    assert not hub.repos[REPO].files()["tokenizer.json"].lfs
    assert store.upload("tokenizer.json", path, nothing) == sha256
    store.put({})
    assert commits(hub) == 1


def test_what_is_put_takes_the_place_of_an_upload_that_waits(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    store.upload(SHARD, shard(tmp_path), nothing)
    store.put({SHARD: b"small now"})
    assert store.list()[SHARD] == len(b"small now")
    store.put({"a": b"1"})
    assert hub.contents(REPO) == {SHARD: b"small now", "a": b"1"}


def test_what_the_hub_would_leave_out_is_told(
    hub: Hub, store: HubStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the Hub counts as small is part of the commit, and has to fit into memory."""
    monkeypatch.setattr("resumerge.mirror.stores.hub_uploads.SMALL", 1000)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"{}" * 501)
    with pytest.raises(StoreError, match=r"does not accept tokenizer\.json: see its \.gitignore"):
        store.upload("tokenizer.json", path, nothing)
    path.write_bytes(b"{}" * 500)
    store.upload("tokenizer.json", path, nothing)
    store.put({})
    assert hub.contents(REPO) == {"tokenizer.json": b"{}" * 500}


HEADER = b"---\nlicense: mit\n---\n"


@pytest.mark.parametrize(
    ("name", "card", "is_the_hubs"),
    [
        ("README.md", b"", True),
        ("README.md", HEADER, True),
        ("README.md", HEADER + b"\nmine", False),
        ("README.md", b"---\ntags: [" + b"a, " * 400 + b"]\n---\n", False),
        ("CARD.md", HEADER, False),
    ],
    ids=["empty", "a header", "a text", "a long header", "another name"],
)
def test_only_a_short_header_without_text_is_the_hubs_own(
    hub: Hub, store: HubStore, name: str, card: bytes, is_the_hubs: bool
) -> None:
    hub.commit(REPO, {name: card})
    assert store.is_placeholder(name, len(card)) is is_the_hubs


def test_an_answer_that_names_no_commit_is_none(
    hub: Hub, store: HubStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit without a parent would not fail if another machine was faster."""
    store.put({"a": b"1"})
    for sha in (None, "", "main"):
        answer = SimpleNamespace(sha=sha, siblings=[])
        monkeypatch.setattr(store._repo, "model_info", lambda answer=answer: answer)
        with pytest.raises(StoreError, match="did not say which commit"):
            store.put_if_absent("b", b"2")


def test_an_empty_file_may_be_uploaded(hub: Hub, store: HubStore, tmp_path: Path) -> None:
    (tmp_path / "empty.bin").touch()
    sha256 = store.upload("empty.bin", tmp_path / "empty.bin", nothing)
    assert store.sha256("empty.bin", nothing) == sha256 == hashlib.sha256(b"").hexdigest()


def test_what_the_hub_has_is_not_sent_again(hub: Hub, store: HubStore, tmp_path: Path) -> None:
    store.upload(SHARD, shard(tmp_path), nothing)
    store.put({})
    sent = hub.received
    again: list[int] = []
    other = HubStore(URL)
    hub.forget_requests()
    other.upload(SHARD, shard(tmp_path), again.append)
    assert not any("preupload" in request.path for request in hub.requests)
    other.upload("the-same.safetensors", shard(tmp_path), again.append)
    other.put({})
    assert sum(again) == 0
    assert hub.received == sent
    assert hub.contents(REPO).keys() == {SHARD, "the-same.safetensors"}


def test_bytes_that_were_stored_and_never_committed_are_not_sent_again(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    store.upload(SHARD, shard(tmp_path), nothing)
    sent = hub.received
    after_a_kill = HubStore(URL)
    after_a_kill.upload(SHARD, shard(tmp_path), nothing)
    after_a_kill.put({})
    assert hub.received == sent >= 300_000
    assert hub.contents(REPO) == {SHARD: shard(tmp_path).read_bytes()}


def test_a_shard_with_another_content_takes_the_place_of_the_first(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    store.upload(SHARD, shard(tmp_path), nothing)
    store.put({})
    store.upload(SHARD, shard(tmp_path, seed=1), nothing)
    store.upload(SHARD, shard(tmp_path, seed=2), nothing)
    store.put({})
    assert hub.contents(REPO) == {SHARD: shard(tmp_path, seed=2).read_bytes()}


def test_an_upload_that_waits_is_forgotten_where_the_next_is_there_already(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    """The first content must not replace the second, which another process has committed."""
    first, second = shard(tmp_path), shard(tmp_path, seed=1)
    store.upload(SHARD, first, nothing)
    hub.commit(REPO, {SHARD: second.read_bytes()})
    store.upload(SHARD, second, nothing)
    store.put({"a": b"1"})
    assert hub.contents(REPO) == {SHARD: second.read_bytes(), "a": b"1"}


def test_an_upload_of_another_thread_waits_for_the_next_commit(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    """An upload that arrives during a commit is not lost."""
    first, second, commit = shard(tmp_path), shard(tmp_path, seed=1), HubRepo.commit
    store.upload(SHARD, first, nothing)
    with pytest.MonkeyPatch.context() as patch:

        def meanwhile(repo: HubRepo, *given: Any) -> None:
            patch.undo()
            commit(repo, *given)
            store.upload(SHARD, second, nothing)

        patch.setattr(HubRepo, "commit", meanwhile)
        store.put({})
    assert hub.contents(REPO) == {SHARD: first.read_bytes()}
    store.put({})
    assert hub.contents(REPO) == {SHARD: second.read_bytes()}


def test_bytes_are_told_before_they_go_out_and_in_pieces(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    path, told = shard(tmp_path, 9_000_000), [0]
    ahead: list[int] = []

    def moved(nbytes: int) -> None:
        assert nbytes <= REPORT_BYTES
        told[0] += nbytes
        ahead.append(told[0] - hub.received)

    hub.bytes_per_second = 20e6
    store.upload(SHARD, path, moved)
    assert told == [9_000_000]
    # No more than a piece and what the kernel holds for a connection is ahead of the Hub.
    assert max(ahead) < REPORT_BYTES + (6 << 20)


def test_a_download_arrives_whole_and_goes_on_where_it_was_cut(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    path, target, moved = shard(tmp_path, 2_000_000), tmp_path / "back.safetensors", []
    store.upload(SHARD, path, nothing)
    store.put({})

    class Killed(Exception):
        pass

    def killed(nbytes: int) -> None:
        moved.append(nbytes)
        if sum(moved) > 500_000:
            raise Killed

    with pytest.raises(Killed):
        store.download(SHARD, target, killed)
    assert not target.exists()
    hub.forget_requests()
    rest: list[int] = []
    store.download(SHARD, target, rest.append)
    assert target.read_bytes() == path.read_bytes()
    assert sum(rest) <= 1_500_000
    assert sum(hub.files_served().values()) <= 1_500_000
    assert not target.with_name("back.safetensors.part").exists()
    with pytest.raises(FileNotFoundError):
        store.download("other", target, nothing)


def test_a_small_file_can_be_downloaded_as_well(hub: Hub, store: HubStore, tmp_path: Path) -> None:
    store.put({"config.json": b'{"a": 1}'})
    store.download("config.json", tmp_path / "c", nothing)
    assert (tmp_path / "c").read_bytes() == b'{"a": 1}'


def test_the_hubs_clock_can_be_asked(hub: Hub, store: HubStore) -> None:
    store.put({"a": b"1"})
    before = datetime.now(UTC).replace(microsecond=0)  # the header of an answer has whole seconds
    there = store.now()
    assert there is not None
    assert before <= there <= datetime.now(UTC)


@pytest.mark.parametrize(
    "url",
    [
        "hf://",
        "hf://name",
        "hf://org/",
        "hf:///name",
        "hf://org/name/more",
        "hf://datasets/org/name",
        "hf://org/name@branch",
        "hf://../name",
        "hf://org/..",
        "hf://org/na me",
        "hf://org/name?x=1",
        "hf://org/-name",
        "org/name",
    ],
)
def test_a_malformed_name_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="hf://org/name") as caught:
        HubStore(url)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "name", ["../a", "a/../../b", "/a", "a//b", "", ".", "a\\b", ".git/config"]
)
def test_names_that_lead_out_are_refused(
    hub: Hub, store: HubStore, tmp_path: Path, name: str
) -> None:
    for ask in (
        lambda: store.put({name: b"x"}),
        lambda: store.put({}, remove=[name]),
        lambda: store.put_if_absent(name, b"x"),
        lambda: store.upload(name, shard(tmp_path), nothing),
        lambda: store.get(name),
        lambda: store.sha256(name, nothing),
        lambda: store.download(name, tmp_path / "x", nothing),
    ):
        with pytest.raises(InputError, match="points outside"):
            ask()
    assert hub.requests == []


def test_a_repo_that_lists_names_that_lead_out_is_refused(hub: Hub, store: HubStore) -> None:
    hub.commit(REPO, {"../../etc/passwd": b"x"})
    with pytest.raises(InputError, match="points outside"):
        store.list()


def test_offline_is_refused_at_opening(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="Offline mode is on"):
        HubStore(URL, offline=True)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="Offline mode is on"):
        HubStore(URL)
    assert hub.requests == []


def test_what_is_too_large_to_be_hashed_here_has_no_hash(
    hub: Hub, store: HubStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub has no SHA-256 of a file without LFS; the hash of its beginning would be wrong."""
    hub.commit(REPO, {"notes.txt": b"0123456789"})
    assert store.sha256("notes.txt", nothing) == hashlib.sha256(b"0123456789").hexdigest()
    monkeypatch.setattr("resumerge.mirror.stores.hub.SMALL", 9)
    with pytest.raises(StoreError, match=r"notes.txt in org/merged is larger than 9 bytes"):
        store.sha256("notes.txt", nothing)
