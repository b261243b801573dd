"""Promise: a file that the user put into a mirror is never written over, and never removed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hub_merges import HubMerge
from loopback_hub import Hub
from mirrored import KILLED, Bench, Merge

MINE = b"# mine\n\nwritten by hand, and longer than what the Hub makes of a licence\n"


def stopped(bench: Bench) -> Merge:
    """Return a merge that was killed when a part of it was in its mirror."""
    merge = bench.merge()
    ended = merge.run(at=60, watched=False)
    assert ended.code == KILLED, ended.stderr
    assert list(merge.mirror.glob(".resumerge/ledger-*"))
    return merge


def last_shard(reference: Mapping[str, bytes]) -> str:
    return max(name for name in reference if name.endswith(".safetensors"))


@pytest.mark.parametrize("lacks", [(), ("rename", "rename_over", "extend")])
def test_files_put_there_during_the_run_are_kept(
    bench: Bench, reference: dict[str, bytes], lacks: tuple[str, ...]
) -> None:
    merge = stopped(bench)
    shard = last_shard(reference)
    assert not (merge.mirror / shard).exists()
    for name in ("README.md", "config.json", shard, ".resumerge/notes.txt"):
        (merge.mirror / name).write_bytes(MINE)
    (merge.mirror / "config.json.kept").write_bytes(b"an older one")
    ended = merge.resume(lacks, watched=False)
    assert ended.code == 0, ended.stderr
    there = merge.mirrored()
    assert there["README.md"] == there["config.json.kept2"] == there[f"{shard}.kept"] == MINE
    assert there["config.json.kept"] == b"an older one"
    assert there[".resumerge/notes.txt"] == MINE
    assert {name: there[name] for name in reference if name != "README.md"} == {
        name: data for name, data in reference.items() if name != "README.md"
    }
    checked = merge.checked()
    assert (checked.state, checked.problems) == ("finished", {})
    assert "README.md" not in checked.files
    assert merge.events().count("file_kept") == 1
    assert merge.events().count("file_set_aside") == 2
    for said in (
        "README.md in the mirror",
        "it is renamed to config.json.kept2",
        f"renamed to {shard}.kept",
    ):
        assert said in ended.stderr


def test_files_of_the_run_itself_are_no_users(bench: Bench, reference: dict[str, bytes]) -> None:
    """An incomplete file of the run is replaced, and not kept."""
    merge = stopped(bench)
    for name in ("README.md", "config.json", last_shard(reference)):
        (merge.mirror / name).write_bytes(reference[name][:40])
    ended = merge.resume(watched=False)
    assert ended.code == 0, ended.stderr
    merge.assert_done(reference)


@pytest.fixture
def on_the_hub(hub: Hub, bench: Bench, tmp_path: Path) -> HubMerge:
    return HubMerge(tmp_path / "card", bench._drivers[0], bench.models, hub=hub)


def test_a_card_written_by_hand_on_the_hub_stays(
    on_the_hub: HubMerge, reference: dict[str, bytes]
) -> None:
    on_the_hub.hub.commit(on_the_hub.repo, {"README.md": MINE})
    ended = on_the_hub.run()
    assert ended.code == 0, ended.stderr
    assert on_the_hub.mirrored() == {**reference, "README.md": MINE}
    assert "was not written by this run and stays unchanged" in ended.stderr


def test_the_header_that_the_hub_makes_is_replaced(
    on_the_hub: HubMerge, reference: dict[str, bytes]
) -> None:
    on_the_hub.hub.commit(on_the_hub.repo, {"README.md": b"---\nlicense: apache-2.0\n---\n"})
    ended = on_the_hub.run()
    assert ended.code == 0, ended.stderr
    assert on_the_hub.mirrored() == reference


def test_links_and_pipes_are_damaged_files(bench: Bench, reference: dict[str, bytes]) -> None:
    """The run does not write through a link in its mirror, and does not wait for a pipe."""
    merge = bench.merge()
    kinds = bench.merge().run(watched=False).kinds
    at = kinds.index("replace model-00003-of-00004.safetensors")
    assert merge.run(at=at, watched=False).code == KILLED
    assert merge.checked().files
    (first, *_) = sorted(merge.mirror.glob("*.safetensors"))
    elsewhere = merge.folder / "elsewhere"
    first.replace(elsewhere)
    before = elsewhere.read_bytes()
    first.symlink_to(elsewhere)
    books = merge.mirror / ".resumerge"
    os.mkfifo(books / f"ledger-000007-000001-{'0' * 32}.db")
    os.mkfifo(books / "lease-000008.json")
    ended = merge.resume(watched=False)
    assert ended.code in (0, 75), ended.stderr
    if ended.code:
        assert "resuming computes it again" in ended.stderr
        ended = merge.resume(watched=False)
    assert ended.code == 0, ended.stderr
    assert elsewhere.read_bytes() == before
    assert not first.is_symlink()
    assert merge.checked().state == "finished"
    assert {n: d for n, d in merge.mirrored().items() if not n.endswith(".kept")} == reference
