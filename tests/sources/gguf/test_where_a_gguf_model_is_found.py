"""Promise: a model in GGUF is found as a file or in a folder; the files beside it have rules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from gguf_models import FAMILIES, numbers_of, write_gguf

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import list_companions, open_source
from resumerge.sources.types import Source

LLAMA = FAMILIES["llama"]


def opened(path: Path) -> Source:
    return open_source(read_reference(str(path)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model as one GGUF file, and the same model as three."""
    folder = tmp_path_factory.mktemp("files")
    write_gguf(folder / "one.gguf", LLAMA, LLAMA.tensors(1), "Q8_0")
    write_gguf(folder / "some.gguf", LLAMA, LLAMA.tensors(1), "Q8_0", shards=3)
    return folder


def test_several_files_are_one_model(files: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in files.glob("some-*"))
    assert names[0] == "some-00001-of-00003.gguf" and len(names) == 3
    for name in names:
        shutil.copy(files / name, tmp_path)
    one = numbers_of(opened(files / "one.gguf"))
    for reference in (tmp_path, tmp_path / names[0], tmp_path / names[2]):
        source = opened(reference)
        assert [*source.files] == names
        found = numbers_of(source)
        assert found.keys() == one.keys()
        assert all((found[key] == one[key]).all() for key in one)
        assert source.config["rope_theta"] == 500000.0
    (tmp_path / names[1]).unlink()
    with pytest.raises(InputError, match="some-00002-of-00003"):
        opened(tmp_path / names[0])


def test_one_of_several_models_has_to_be_named(files: Path, tmp_path: Path) -> None:
    shutil.copy(files / "one.gguf", tmp_path / "model-Q8_0.gguf")
    shutil.copy(files / "one.gguf", tmp_path / "mmproj-model.gguf")
    assert [*opened(tmp_path).files] == ["model-Q8_0.gguf"]
    shutil.copy(files / "one.gguf", tmp_path / "model-Q4_0.gguf")
    with pytest.raises(InputError, match=r"(?s)several models in GGUF.*model-Q4_0.gguf"):
        opened(tmp_path)
    source = opened(tmp_path / "model-Q4_0.gguf")
    assert any("not read: " in note and "model-Q8_0.gguf" in note for note in source.notes)


def test_other_weights_of_the_folder_come_first(files: Path, tmp_path: Path) -> None:
    shutil.copy(files / "one.gguf", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    source = opened(tmp_path)
    assert [*source.files] == ["model.safetensors"]
    assert any("not read: one.gguf" in note for note in source.notes)


def test_config_and_tokenizer_beside_it_are_its_own(files: Path, tmp_path: Path) -> None:
    shutil.copy(files / "one.gguf", tmp_path)
    for name in ("tokenizer.json", "LICENSE", "setup.py"):
        (tmp_path / name).write_text("{}")
    source = opened(tmp_path / "one.gguf")
    assert list_companions(source) == ["LICENSE", "tokenizer.json"]
    assert source.config["model_type"] == "llama" and source.config["dtype"] == "bfloat16"
    config = {"model_type": "mistral", "dtype": "float16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    source = opened(tmp_path / "one.gguf")
    assert source.config == config
    assert {tensor.dtype for tensor in source.tensors.values()} == {"F16"}


def test_an_adapter_is_not_read_from_gguf(files: Path, tmp_path: Path) -> None:
    shutil.copy(files / "one.gguf", tmp_path / "base.gguf")
    with pytest.raises(InputError, match="Adapters are not read from GGUF"):
        open_source(read_reference(f"{tmp_path}/base.gguf+{files}/one.gguf"))
