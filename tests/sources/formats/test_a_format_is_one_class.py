"""A format of weight files is one class and its registration: its object, and its suffixes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import xxhash
from loopback_hub import Hub
from merging import merge, tensors_of

from resumerge.errors import InputError
from resumerge.recipe.references import WEIGHT_SUFFIXES
from resumerge.recipe.types import ModelRef
from resumerge.sources import open_source
from resumerge.sources.formats import registry
from resumerge.sources.formats.weight_format import Header, ReadRange, WeightFormat
from resumerge.tensors import Stored

NAMES = [f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(2)]
CONFIG = {"model_type": "llama", "num_hidden_layers": 2}
LINEAR = "merge_method: linear\nparameters: {weight: 0.5}\nmodels: [{model: MODEL}, {model: two}]\n"


class Raw(WeightFormat):
    """Eight digits (the length of the header), a JSON object of shapes, then float32 data."""

    name = "raw file"
    suffixes = (".raw",)
    model_file = "model.raw"
    adapter_file = "adapter_model.raw"
    header_first = True

    def read_header(self, read: ReadRange, *, size: int, file: str, where: str) -> Header:
        length = int(read(0, 8))
        raw = read(8, 8 + length)
        tensors, offset = {}, 8 + length
        for name, shape in json.loads(raw).items():
            info = Stored(name, "F32", tuple(shape), file, offset)
            tensors[name], offset = info, offset + info.nbytes
        if offset != size:
            raise self.damaged(where, f"{offset} bytes", f"{size} bytes")
        return Header(tensors, xxhash.xxh3_128_hexdigest(raw))


@pytest.fixture(autouse=True)
def raw() -> Iterator[None]:
    registry.FORMATS.append(added := Raw())
    yield
    registry.FORMATS.remove(added)


def files(seed: int) -> tuple[dict[str, torch.Tensor], dict[str, bytes]]:
    """Return a model's tensors, and its files: a raw file for each tensor, config and index."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(48, 32, generator=generator) for name in NAMES}
    found = {"config.json": json.dumps(CONFIG).encode()}
    weight_map = {}
    for number, (name, tensor) in enumerate(tensors.items()):
        header = json.dumps({name: list(tensor.shape)}).encode()
        weight_map[name] = f"{number}.raw"
        found[f"{number}.raw"] = b"%08d" % len(header) + header + tensor.numpy().tobytes()
    found["model.raw.index.json"] = json.dumps({"weight_map": weight_map}).encode()
    return tensors, found


def written(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def test_a_local_model_is_merged(tmp_path: Path) -> None:
    (one, saved), (two, others) = files(1), files(2)
    written(tmp_path / "one", saved)
    written(tmp_path / "two", others)
    out = tensors_of(merge(tmp_path, LINEAR.replace("MODEL", "one"), tmp_path / "out"))
    assert all(torch.equal(out[name], (one[name] + two[name]) / 2) for name in NAMES)


def test_a_model_on_the_hub_is_merged(tmp_path: Path, hub: Hub) -> None:
    """The headers of a model on the Hub are read without a download of its files."""
    (one, saved), (two, others) = files(1), files(2)
    hub.commit("org/one", saved)
    written(tmp_path / "two", others)
    source = open_source(ModelRef("org/one", "org/one"))
    assert set(source.tensors) == set(NAMES)
    assert not any(file.present for file in source.files.values())
    out = tensors_of(merge(tmp_path, LINEAR.replace("MODEL", "org/one"), tmp_path / "out"))
    assert all(torch.equal(out[name], (one[name] + two[name]) / 2) for name in NAMES)


def test_a_single_file_is_found_and_its_damage_reported(tmp_path: Path) -> None:
    _, saved = files(1)
    written(tmp_path / "one", {"config.json": b"{}", "model.raw": saved["0.raw"][:-1]})
    with pytest.raises(InputError, match="The raw file is damaged"):
        open_source(ModelRef(str(tmp_path / "one"), str(tmp_path / "one")))


def test_one_file_of_a_repo_is_known_by_the_suffix_of_any_format() -> None:
    known = [suffix for each in registry.FORMATS for suffix in each.suffixes]
    assert sorted(known) == sorted([*WEIGHT_SUFFIXES, *Raw.suffixes])


def test_a_folder_without_weights_is_told_all_formats(tmp_path: Path) -> None:
    written(tmp_path / "none", {"config.json": b"{}"})
    with pytest.raises(InputError, match=r"model\.raw"):
        open_source(ModelRef(str(tmp_path / "none"), str(tmp_path / "none")))
