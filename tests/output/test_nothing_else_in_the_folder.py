"""The output has shards, an index for several shards, config, card and tokenizer, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from merging import merge, tensors_of
from safetensors import safe_open
from tiny_models import write_family

RECIPE = """# a comment that the card keeps
merge_method: ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.5, density: 0.5}}
  - {model: code, parameters: {weight: 0.5, density: 0.5}}
dtype: float32
"""
COMPANIONS = {
    "tokenizer.json": "{}",
    "tokenizer_config.json": '{"chat_template": "é"}',
    "special_tokens_map.json": "{}",
    "tokenizer.model": "\0\1binary",
    "vocab.txt": "a\nb\n",
    "generation_config.json": "{}",
    "chat_template.jinja": "{{ messages }}",
    "1_Pooling/config.json": "{}",
    "preprocessor_config.json": "{}",
    "processor_config.json": "{}",
    "video_preprocessor_config.json": "{}",
}
WRITTEN = {"config.json", "README.md", "mergekit_config.yml"}
OTHERS = {
    "README.md": "# the base's own card",
    "pytorch_model.bin": "weights",
    "optimizer.pt": "state",
    "training_args.bin": "args",
    "trainer_state.json": "{}",
    "checkpoint-100/config.json": "{}",
    "onnx/config.json": "{}",
    "some_folder/config.json": "{}",
    "mergekit_config.yml": "how the base was made",
    "all_results.json": "{}",
    ".gitattributes": "*.bin filter=lfs",
    "model.gguf": "weights",
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Write a base with every kind of file beside its weights, and `math` with a tokenizer."""
    folder = write_family(tmp_path / "models")
    for name, text in {**COMPANIONS, **OTHERS}.items():
        path = folder / "base" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (folder / "math" / "tokenizer.json").write_text('{"model": "of math"}')
    (folder / "math" / "added_tokens.json").write_text("{}")
    return folder


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_one_shard_has_no_index(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPE, tmp_path / "out")
    assert files(out) == {"model.safetensors", *WRITTEN, *COMPANIONS}
    assert (out / "mergekit_config.yml").read_text() == RECIPE


def test_tokenizer_and_configs_are_the_bases_byte_for_byte(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPE, tmp_path / "out")
    for name in COMPANIONS:
        assert (out / name).read_bytes() == (models / "base" / name).read_bytes()


def test_the_index_says_where_every_tensor_is(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPE, tmp_path / "out", shard_size=20_000)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    shards = sorted(out.glob("*.safetensors"))
    assert len(shards) > 2
    held = {}
    for shard in shards:
        with safe_open(shard, "pt") as file:
            assert file.metadata() == {"format": "pt"}
            held.update(dict.fromkeys(file.keys(), shard.name))
    assert index["weight_map"] == held
    whole = sum(t.numel() * t.element_size() for t in tensors_of(out).values())
    assert index["metadata"]["total_size"] == whole
    expected = {shard.name for shard in shards} | {"model.safetensors.index.json"}
    assert files(out) == {*expected, *WRITTEN, *COMPANIONS}


def test_the_card_has_recipe_models_with_their_pins_and_papers(
    models: Path, tmp_path: Path
) -> None:
    out = merge(models, RECIPE, tmp_path / "out")
    card = (out / "README.md").read_text()
    _, metadata, body = card.split("---\n", 2)
    read = yaml.safe_load(metadata)
    noted = read.pop("resumerge")
    assert read == {"library_name": "transformers", "tags": ["mergekit", "merge", "resumerge"]}
    assert [pin["model"] for pin in noted["models"]] == ["math", "code", "base"]
    assert f"```yaml\n{RECIPE.strip()}\n```" in body
    assert "https://arxiv.org/abs/2306.01708" in body
    rows = [line for line in body.splitlines() if line.startswith("- `")]
    assert [row.split("`")[1] for row in rows] == ["math", "code", "base"]
    assert all("checksum of what this recipe reads of it: `" in row for row in rows)
    assert "base model" in rows[2]


def test_the_card_does_not_depend_on_when_or_where_it_was_made(
    models: Path, tmp_path: Path
) -> None:
    cards = []
    for place in ("one", "another"):
        (tmp_path / place).mkdir()
        out = merge(models, RECIPE, tmp_path / place / "out")
        cards.append((out / "README.md").read_text())
    assert cards[0] == cards[1]
    assert str(tmp_path) not in cards[0]


def test_backticks_in_the_recipe_do_not_end_it_in_the_card(models: Path, tmp_path: Path) -> None:
    recipe = RECIPE + "chat_template: |\n  {{ '```python' }}\n  ```\n  # injected\n"
    card = (merge(models, recipe, tmp_path / "out") / "README.md").read_text()
    assert f"````yaml\n{recipe.strip()}\n````\n" in card


def test_files_that_a_model_is_not_opened_with_stay_behind(models: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("{}")
    (models / "base" / "secrets.json").write_text("{}")
    (models / "base" / "added_tokens.json").symlink_to(tmp_path / "private")
    out = merge(models, RECIPE, tmp_path / "out")
    assert files(out) == {"model.safetensors", *WRITTEN, *COMPANIONS}


def test_the_names_of_the_tensors_are_those_of_the_base(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPE, tmp_path / "out")
    assert tensors_of(out).keys() == tensors_of(models / "base").keys()
