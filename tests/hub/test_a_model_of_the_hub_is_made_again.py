"""Promise: a model on the Hub is made again from its card there, at the commits that it names."""

from __future__ import annotations

import json
from pathlib import Path

from loopback_hub import Hub
from merges import Place, layered

PUSHED = "org/pushed"


def test_though_a_branch_has_moved(hub: Hub, tmp_path: Path) -> None:
    for seed, name in enumerate(("org/math", "org/code")):
        hub.commit(name, layered(seed, shards=2))
    place = Place(hub, tmp_path / "place")
    place.call("run", "merge.yaml", "out", "--shard-size", "500KB")
    place.call("push", "out", PUSHED)
    hub.commit("org/code", layered(3, shards=2))

    elsewhere = Place(hub, tmp_path / "elsewhere")
    done = elsewhere.call("reproduce", PUSHED, "again")
    assert "again: identical to org/pushed@" in done.stdout
    files = [file.name for file in (place.folder / "out").glob("*.safetensors")]
    assert len(files) == 2
    for name in files:
        expected = (place.folder / "out" / name).read_bytes()
        assert (elsewhere.folder / "again" / name).read_bytes() == expected
    assert not list((elsewhere.folder / "hf").glob("**/models--org--pushed/**/*.safetensors"))


def test_bytes_that_differ_there_are_told(hub: Hub, tmp_path: Path) -> None:
    for seed, name in enumerate(("org/math", "org/code")):
        hub.commit(name, layered(seed, shards=2))
    place = Place(hub, tmp_path / "place")
    place.call("run", "merge.yaml", "out")
    weights = bytearray((place.folder / "out" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    names = [path.name for path in (place.folder / "out").iterdir()]
    files = {name: (place.folder / "out" / name).read_bytes() for name in names}
    hub.commit(PUSHED, {**files, "model.safetensors": bytes(weights), "tokenizer.json": b"{ }"})

    done = place.call("reproduce", PUSHED, "again", "--json", expect=2)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "reproduced" and not found["identical"]
    assert found["differing"] == [
        {"name": "model.safetensors", "found": "its hash differs"},
        {"name": "tokenizer.json", "found": "the file differs"},
    ]


def test_a_commit_that_is_gone_is_named(hub: Hub, tmp_path: Path) -> None:
    for seed, name in enumerate(("org/math", "org/code")):
        hub.commit(name, layered(seed, shards=2))
    place = Place(hub, tmp_path / "place")
    place.call("run", "merge.yaml", "out", "--stream")
    card = place.folder / "out" / "README.md"
    commit = card.read_text().split("revision: ")[1].split("\n")[0]
    card.write_text(card.read_text().replace(commit, "f" * 40))
    done = Place(hub, tmp_path / "elsewhere").call(
        "reproduce", place.folder / "out", "again", expect=2
    )
    assert "no such branch, tag or commit: org/math" in done.stderr
    assert "f" * 40 in done.stderr, done.stderr
