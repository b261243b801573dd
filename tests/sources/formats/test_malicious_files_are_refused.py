"""A safetensors file that lies about itself is refused, with its name and what is wrong."""

import json
import os
from pathlib import Path

import pytest
from malicious_files import DATA, MALICIOUS, VALID, file_of, tensor

from resumerge.errors import InputError
from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.formats.registry import read_header
from resumerge.sources.index import INDEX_FILE


def test_the_file_that_the_others_are_made_from_is_valid(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(VALID)
    tensors = read_header(tmp_path / "model.safetensors", "model.safetensors").tensors
    assert tensors["a"].shape == (2,)


@pytest.mark.parametrize("name", MALICIOUS)
def test_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(MALICIOUS[name])
    with pytest.raises(InputError) as caught:
        open_folder(tmp_path)
    [problem] = caught.value.problems
    assert problem.where == str(path)
    assert problem.expected and problem.found and problem.fix
    assert len(str(problem)) < 2000


def test_a_header_that_would_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((100_000_001).to_bytes(8, "little"))
    os.truncate(path, 300_000_000)
    with pytest.raises(InputError, match="at most 100000000 bytes"):
        open_folder(tmp_path)


INDEXES = {
    "parent_folder": {"a": "../model.safetensors"},
    "parent_folder_inside": {"a": "sub/../../model.safetensors"},
    "absolute": {"a": "/etc/passwd"},
    "windows_path": {"a": "..\\model.safetensors"},
    "nul": {"a": "model.safetensors\0.txt"},
    "no_name": {"a": ""},
    "a_folder": {"a": "."},
    "missing_file": {"a": "model-00002-of-00002.safetensors"},
    "name_longer_than_a_file_can_have": {"a": "m" * 300},
    "tensor_that_is_not_in_the_file": {"a": "one.safetensors", "b": "one.safetensors"},
    "a_list": ["one.safetensors"],
    "null": None,
}


@pytest.mark.parametrize("name", INDEXES)
def test_index(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "one.safetensors").write_bytes(VALID)
    (tmp_path / "model.safetensors").write_bytes(VALID)
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": INDEXES[name]}))
    refused(folder, INDEX_FILE)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe{}", b'{"weight_map": ' * 50_000]
)
def test_index_that_is_no_index(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "one.safetensors").write_bytes(VALID)
    (tmp_path / INDEX_FILE).write_bytes(text)
    refused(tmp_path, INDEX_FILE)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"\xff\xfe{}", b'{"a": ' * 50_000),
        *(b'{"a": ' + b"[" * deep + b"]" * deep + b"}" for deep in (100, 900, 2000)),
    ],
    ids=lambda text: text[:8],
)
def test_config_that_is_no_config(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(VALID)
    (tmp_path / "config.json").write_bytes(text)
    refused(tmp_path, "config.json")


def test_config_with_as_many_levels_as_are_taken(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(VALID)
    (tmp_path / "config.json").write_bytes(b'{"a": ' + b"[" * 99 + b"]" * 99 + b"}")
    assert open_folder(tmp_path).config["a"]


def test_one_tensor_in_two_files_that_no_index_names(tmp_path: Path) -> None:
    (tmp_path / "1.safetensors").write_bytes(VALID)
    (tmp_path / "2.safetensors").write_bytes(
        file_of({"a": tensor(), "b": tensor("F32", [0], [8, 8])}, DATA)
    )
    refused(tmp_path, "2.safetensors")


def test_a_link_out_of_the_folder_is_followed_since_the_hub_cache_is_made_of_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "blob").write_bytes(VALID)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").symlink_to(tmp_path / "blob")
    assert set(open_folder(tmp_path / "model").tensors) == {"a"}


def open_folder(folder: Path) -> Source:
    return open_source(ModelRef(str(folder), str(folder)))


def refused(folder: Path, file: str) -> None:
    with pytest.raises(InputError) as caught:
        open_folder(folder)
    for problem in caught.value.problems:
        assert problem.where == str(folder / file)
        assert problem.found
        assert problem.fix


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_an_empty_tensor_begins_where_the_next_one_does(tmp_path: Path, names: str) -> None:
    """The order of tensors in the header does not matter."""
    entries = {"a": tensor(), "b": tensor(shape=[0], offsets=(0, 0))}
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({name: entries[name] for name in names}, DATA))
    found = read_header(path, path.name).tensors
    assert {name: info.nbytes for name, info in found.items()} == {"a": 8, "b": 0}
