"""Promise: the tokenizer in a GGUF file splits text as the one did that it was made from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf_outputs import LLAMA_3, QWEN_2, texts, write_bytes, write_checkpoint, write_pieces
from merging import merge

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import list_companions, open_source

RECIPE = "merge_method: passthrough\nmodels: [{model: model.gguf}]\n"
KINDS: dict[str, Callable[[Path], None]] = {
    "llama-bpe": lambda folder: write_bytes(folder, LLAMA_3),
    "qwen2": lambda folder: write_bytes(folder, QWEN_2),
    "gpt-2": lambda folder: write_bytes(folder, None),
    "smollm": lambda folder: write_bytes(folder, None, digits=True),
    "pieces": lambda folder: write_pieces(folder, prefix=True),
    "pieces without a space before": lambda folder: write_pieces(folder, prefix=False),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    write_checkpoint(folder)
    return folder


def written(checkpoint: Path, kind: str, place: Path) -> Path:
    """Write a model with a tokenizer as a GGUF file; return the model's tokenizer.json."""
    shutil.copytree(checkpoint, place / "model")
    KINDS[kind](place / "model")
    recipe = RECIPE.replace("model.gguf", "model")
    merge(place, recipe, place / "model.gguf")
    return (place / "model").rename(place / "original") / "tokenizer.json"


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_split_as_before(kind: str, checkpoint: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    original = written(checkpoint, kind, tmp_path)
    out = merge(tmp_path, RECIPE, tmp_path / "out")
    before = Tokenizer.from_file(str(original))
    after = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert after.get_vocab() == before.get_vocab()
    for text in texts("<|user|>"):
        if kind == "qwen2":
            text = text.replace("e\u0301", "")  # the name says that it is normalised
        for special in (False, True):
            ids = before.encode(text, add_special_tokens=special).ids
            assert after.encode(text, add_special_tokens=special).ids == ids, repr(text)
        assert after.decode(ids) == before.decode(ids)
    loaded = AutoTokenizer.from_pretrained(out)
    settings = json.loads((original.parent / "tokenizer_config.json").read_text())
    assert loaded.chat_template == settings["chat_template"]
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token) == ("<s>", "</s>", "<pad>")


def test_files_beside_it_come_first(checkpoint: Path, tmp_path: Path) -> None:
    written(checkpoint, "gpt-2", tmp_path)
    source = open_source(read_reference(str(tmp_path / "model.gguf")))
    assert list_companions(source) == ["tokenizer.json", "tokenizer_config.json"]
    assert any("config.json and the tokenizer are made of" in note for note in source.notes)
    shutil.copy(tmp_path / "original" / "tokenizer.json", tmp_path)
    source = open_source(read_reference(str(tmp_path / "model.gguf")))
    assert list_companions(source) == ["tokenizer.json"]


def test_tokens_of_two_models_are_brought_together(checkpoint: Path, tmp_path: Path) -> None:
    written(checkpoint, "llama-bpe", tmp_path)
    recipe = """
merge_method: linear
models: [{model: model.gguf}, {model: original}]
parameters: {weight: 0.5}
tokenizer: {source: union, tokens: {"<|extra|>": {source: {kind: zero}}}}
"""
    out = merge(tmp_path, recipe, tmp_path / "out")
    made = json.loads((out / "tokenizer.json").read_text())
    assert made["added_tokens"][-1]["content"] == "<|extra|>"


def _rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a GGUF file again with other metadata."""
    reader = gguf.GGUFReader(path)
    values = {name: field.contents() for name, field in reader.fields.items()}
    change(values)
    writer = gguf.GGUFWriter(path.with_suffix(".new"), values.pop("general.architecture"))
    for name, value in values.items():
        if name.startswith("GGUF."):
            continue
        is_text = isinstance(value, str)
        kind = gguf.GGUFValueType.STRING if is_text else reader.fields[name].types[0]
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("tokenizer.ggml.pre", "falcon", "its pre-tokenizer, 'falcon', is not known"),
        ("tokenizer.ggml.model", "bert", "its kind, 'bert', is not known"),
        ("tokenizer.ggml.model", None, "it has none"),
    ],
)
def test_what_is_not_known_is_said_and_not_converted(
    key: str, value: str | None, why: str, checkpoint: Path, tmp_path: Path
) -> None:
    written(checkpoint, "gpt-2", tmp_path)

    def change(values: dict[str, Any]) -> None:
        values.pop(key) if value is None else values.update({key: value})

    _rewritten(tmp_path / "model.gguf", change)
    source = open_source(read_reference(str(tmp_path / "model.gguf")))
    assert list_companions(source) == []
    assert any(note.endswith(f"is not converted: {why}") for note in source.notes)


DAMAGE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a merge of no tokens": ("merges", lambda found: ["zz qq", *found[1:]]),
    "a merge of one part": ("merges", lambda found: ["zz", *found[1:]]),
    "a token twice": ("tokens", lambda found: [found[5], *found[1:]]),
    "more tokens than rows": ("tokens", lambda found: [*found, "one more"]),
    "too few types": ("token_type", lambda found: found[1:]),
    "a number above all": ("bos_token_id", lambda found: 100_000),
    "no truth": ("add_bos_token", lambda found: "yes"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused(name: str, checkpoint: Path, tmp_path: Path) -> None:
    key, damage = DAMAGE[name]
    written(checkpoint, "gpt-2", tmp_path)

    def change(values: dict[str, Any]) -> None:
        values[f"tokenizer.ggml.{key}"] = damage(values[f"tokenizer.ggml.{key}"])

    _rewritten(tmp_path / "model.gguf", change)
    with pytest.raises(InputError, match="The metadata of a GGUF file is damaged") as error:
        merge(tmp_path, RECIPE, tmp_path / "out")
    assert error.value.problems[0].where.endswith(f"tokenizer.ggml.{key}")
    assert not (tmp_path / "out").exists()
