"""Adapters that are on the Hub are combined like those in folders; no model is requested."""

from pathlib import Path

import pytest
from loopback_hub import Hub
from lora_files import write_lora_files
from merging import merge, shards_of
from tiny_models import write_family

from resumerge.errors import InputError

MODULES = {"model.layers.0.self_attn.q_proj": (16, 16), "model.layers.1.mlp.up_proj": (40, 16)}
RECIPE = """merge_method: ties
models:
- {model: FIRST, parameters: {weight: 0.5, density: 0.5}}
- {model: SECOND, parameters: {weight: 0.5, density: 0.5}}
"""


def recipe(first: str, second: str) -> str:
    return RECIPE.replace("FIRST", first).replace("SECOND", second)


@pytest.fixture
def folder(hub: Hub, tmp_path: Path) -> Path:
    for number, name in enumerate(("one", "two")):
        write_lora_files(tmp_path / name, MODULES, number, rank=3)
        files = {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        hub.commit(f"org/{name}", {**files, "README.md": b"# a card"})
    return tmp_path


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_bytes_as_of_folders(stream: bool, folder: Path) -> None:
    own = merge(folder, recipe("one", "two"), folder / "own")
    of_hub = merge(folder, recipe("org/one", "org/two"), folder / "hub", stream=stream)
    # The names of models are no part of the numbers, only of the key of the search for them.
    assert shards_of(of_hub) == shards_of(own)
    card = (of_hub / "README.md").read_text()
    assert card.count("commit `") == 2
    mixed = merge(folder, recipe("one", "org/two"), folder / "mixed", stream=stream)
    assert shards_of(mixed) == shards_of(own)


def test_a_model_of_the_hub_is_no_adapter(hub: Hub, folder: Path) -> None:
    write_family(folder)
    files = {file.name: file.read_bytes() for file in (folder / "math").iterdir()}
    hub.commit("org/math", files)
    with pytest.raises(InputError, match="org/one is an adapter, and org/math is none"):
        merge(folder, recipe("org/one", "org/math"), folder / "out")
    with pytest.raises(InputError, match="ties needs a base model"):
        merge(folder, recipe("org/math", "math"), folder / "out")
