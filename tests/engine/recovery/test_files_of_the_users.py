"""Promise: a file that the run did not write is never lost, whatever its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Bench, Merge

MINE = b"mine"


@pytest.fixture
def halfway(bench: Bench, operations: int) -> Merge:
    merge = bench.merge()
    merge.run(operations // 2)
    return merge


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_model_card_that_is_there_stays(halfway: Merge, reference: dict[str, bytes]) -> None:
    (halfway.out / "README.md").write_bytes(MINE)
    halfway.finish()
    assert halfway.files() == {**reference, "README.md": MINE}
    assert "file_kept" in halfway.events()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "1_Pooling/config.json"])
def test_any_other_file_is_set_aside(
    halfway: Merge, reference: dict[str, bytes], name: str
) -> None:
    (halfway.out / name).parent.mkdir(exist_ok=True)
    (halfway.out / name).write_bytes(MINE)
    (halfway.out / f"{name}.kept").write_bytes(b"mine too")
    ended = halfway.finish()
    assert halfway.files() == {**reference, f"{name}.kept": b"mine too", f"{name}.kept2": MINE}
    assert f"{Path(name).name}.kept2" in ended.stderr


def test_a_shard_of_somebody_else_beside_an_unfinished_one_is_set_aside(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    [shard] = halfway.query("SELECT * FROM shards ORDER BY number DESC LIMIT 1")
    assert shard["state"] == "open" and not (halfway.out / shard["name"]).exists()
    (halfway.out / shard["name"]).write_bytes(MINE)
    halfway.finish()
    assert halfway.files() == {**reference, f"{shard['name']}.kept": MINE}


def test_an_edited_config_of_a_damaged_model_is_kept_when_the_model_is_mended(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    halfway.finish()
    (halfway.out / "config.json").write_bytes(MINE)
    (halfway.out / "model-00002-of-00004.safetensors").unlink()
    halfway.finish()
    assert halfway.files() == {**reference, "config.json.kept": MINE}


@pytest.mark.parametrize(
    "name",
    ["README.md", "config.json", "1_Pooling/config.json", "model-00001-of-00004.safetensors"],
)
def test_starting_over_deletes_nothing_that_was_edited(halfway: Merge, name: str) -> None:
    halfway.finish()
    (halfway.out / name).write_bytes(MINE)
    before = everything(halfway.root)
    refused = halfway.run(restart=True)
    assert refused.code == 2
    assert name in refused.stderr
    assert "move the files that you need" in refused.stderr
    assert everything(halfway.out) == {
        path.removeprefix("merged/"): data
        for path, data in before.items()
        if path.startswith("merged/")
    }
    (halfway.out / name).unlink()
    assert halfway.run(restart=True).code == 0
