"""Promise: of files with the name of one of the run's own, the run's are told from the user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from plain_folder import PlainFolder

from resumerge.backup_names import is_backup
from resumerge.errors import Reason, Resumable
from resumerge.mirror.conflicts import ConflictResolver
from resumerge.mirror.stores.folder import FolderStore

OURS = b"what the run would write there"


class Asked:
    """A conflict resolver and its reports: the name of each file, and its name afterwards."""

    def __init__(self, store: PlainFolder | FolderStore) -> None:
        self.store, self.told = store, list[tuple[str, str]]()
        self._resolver = ConflictResolver(store, self._tell, lambda nbytes: None)

    def _tell(self, name: str, now: str) -> None:
        assert (self.store.folder / now).exists(), "it is told what was done"
        self.told.append((name, now))

    def make_way(self, name: str, content: bytes | Path) -> bool:
        return self._resolver.make_way(name, content, self.store.list().get(name))


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Return a resolver in a folder whose files can be renamed."""
    asked = Asked(FolderStore(tmp_path / "mirror"))
    asked.store.folder.mkdir()
    return asked


@pytest.fixture(params=[False, True], ids=["in memory", "in a file"])
def ours(request: pytest.FixtureRequest, tmp_path: Path) -> bytes | Path:
    """Return what the run writes: bytes in memory, or the path of a file."""
    if not request.param:
        return OURS
    (tmp_path / "local").write_bytes(OURS)
    return tmp_path / "local"


@pytest.mark.parametrize("theirs", [OURS, OURS[:7], b""], ids=["whole", "its beginning", "empty"])
def test_what_the_run_wrote_is_replaced(asked: Asked, ours: bytes | Path, theirs: bytes) -> None:
    (asked.store.folder / "config.json").write_bytes(theirs)
    assert asked.make_way("config.json", ours)
    assert asked.store.list() == {"config.json": len(theirs)}
    assert not asked.told


@pytest.mark.parametrize("theirs", [OURS + b"!", b"mine" + OURS[4:]], ids=["longer", "as long"])
def test_a_file_of_the_user_gets_another_name(
    asked: Asked, ours: bytes | Path, theirs: bytes
) -> None:
    (asked.store.folder / "tokenizer.json").write_bytes(theirs)
    assert asked.make_way("tokenizer.json", ours)
    assert (asked.store.folder / "tokenizer.json.kept").read_bytes() == theirs
    assert asked.told == [("tokenizer.json", "tokenizer.json.kept")]


def test_a_shard_of_the_right_size_is_compared_by_the_upload(asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(OURS)
    for theirs, kept in [(b"damaged".ljust(len(OURS)), False), (b"mine", True)]:
        (asked.store.folder / "a.safetensors").write_bytes(theirs)
        assert asked.make_way("a.safetensors", tmp_path / "local")
        assert asked.told == [("a.safetensors", "a.safetensors.kept")] * kept


def test_a_small_file_of_weights_is_compared_here(asked: Asked) -> None:
    """A small file of weights is written in one step, so that no upload compares it."""
    (asked.store.folder / "added.safetensors").write_bytes(b"mine".ljust(len(OURS)))
    assert asked.make_way("added.safetensors", OURS)
    assert asked.told == [("added.safetensors", "added.safetensors.kept")]


def test_what_the_place_itself_made_is_no_users(tmp_path: Path) -> None:
    class Making(PlainFolder):
        def is_placeholder(self, name: str, nbytes: int) -> bool:
            return self.get(name) == b"made there" and nbytes == 10

    asked = Asked(Making(tmp_path / "mirror"))
    for name in ("README.md", "config.json"):
        asked.store.put({name: b"made there"})
        assert asked.make_way(name, OURS)
        assert asked.store.get(name) == b"made there" and not asked.told


def test_a_link_is_no_file_of_the_run(asked: Asked) -> None:
    (asked.store.folder / "config.json").symlink_to(os.devnull)
    assert asked.make_way("config.json", OURS)
    assert (asked.store.folder / "config.json.kept").is_symlink()


def test_a_card_that_was_edited_stays_and_is_told_once(asked: Asked) -> None:
    (asked.store.folder / "README.md").write_bytes(b"mine")
    for _ in range(2):
        assert not asked.make_way("README.md", OURS)
    assert asked.store.list() == {"README.md": 4}
    assert asked.told == [("README.md", "README.md")]


def test_where_nothing_can_be_renamed_the_user_is_asked_to(tmp_path: Path) -> None:
    asked = Asked(PlainFolder(tmp_path / "mirror"))
    asked.store.put({"config.json": b"mine"})
    told = r"did not write: config\.json\. Rename or delete it"
    with pytest.raises(Resumable, match=told) as stopped:
        asked.make_way("config.json", OURS)
    assert stopped.value.reason == Reason.MIRROR
    assert asked.store.get("config.json") == b"mine"
    assert not asked.told


def test_an_earlier_backup_is_not_written_over(asked: Asked) -> None:
    for number, name in enumerate(("config.json.kept", "config.json.kept2", "config.json")):
        (asked.store.folder / name).write_bytes(b"mine %d" % number)
    assert asked.make_way("config.json", OURS)
    names = ("config.json.kept", "config.json.kept2", "config.json.kept3")
    contents = {name: (asked.store.folder / name).read_bytes() for name in names}
    assert contents == {name: b"mine %d" % number for number, name in enumerate(names)}
    assert asked.told == [("config.json", "config.json.kept3")]


def test_only_a_name_with_the_suffix_is_a_backups() -> None:
    backups = ["config.json.kept", "config.json.kept2", "a\nb.kept10", "folder/x.kept"]
    others = [".kept", "config.json.kept.txt", "config.json.kept2a", "kept", "config.kept.json"]
    assert [name for name in [*backups, *others] if is_backup(name)] == backups
