"""A model without a tokenizer is reported, with what to write; its tokens are assumed to be the
base's, as in mergekit 0.1.5, if it has a row for each.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit
from merging import Told, merge, tensors_of, working_in
from tiny_models import random_tensors, write_family, write_model
from token_models import json_of, write_token_model
from transformers import AutoTokenizer

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.options import Options

TWO = (
    "merge_method: linear\ndtype: float32\nmodels:\n"
    "  - {model: %s, parameters: {weight: 1}}\n  - {model: %s, parameters: {weight: 3}}\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `a` and `b` with tokenizers, and `mute`, `wider` and `narrower` without.

    `mute` has as many rows as `a`, `wider` has more, and `narrower` has fewer.
    """
    folder = tmp_path_factory.mktemp("models")
    write_token_model(folder / "a", "llama", 1, size=20, added=["[A]"])
    write_token_model(folder / "b", "llama", 2, size=20, added=["[B]"])
    for seed, (name, padding) in enumerate({"mute": 0, "wider": 3, "narrower": -1}.items(), 3):
        write_token_model(folder / name, "llama", seed, size=20, added=["[A]"], padding=padding)
        for file in (folder / name).iterdir():
            if file.name not in ("config.json", "model.safetensors"):
                file.unlink()
    (folder / "mute" / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "mute" / "special_tokens_map.json").write_text("{}")
    return folder


def planned(models: Path, recipe: str) -> dict[str, Any]:
    (models / "recipe.yaml").write_text(recipe)
    with working_in(models):
        return resumerge.plan("recipe.yaml")


@pytest.mark.parametrize("source", ["base", "union"])
@pytest.mark.parametrize("without", ["mute", "wider"])
def test_its_tokens_are_taken_to_be_the_bases(
    source: str, without: str, models: Path, tmp_path: Path
) -> None:
    recipe = TWO % ("a", without) + f"base_model: a\ntokenizer_source: {source}\n"
    notes = planned(models, recipe)["notes"]
    told = f"{without} has no tokenizer: the tokens of a are assumed"
    [note] = [note for note in notes if note.startswith(told)]
    assert ("and a has" in note) == (without == "wider")
    out = tensors_of(merge(models, recipe, tmp_path / "out"))
    name = "model.embed_tokens.weight"
    one, other = (tensors_of(models / model)[name] for model in ("a", without))
    torch.testing.assert_close(out[name], (one + 3 * other[: len(one)]) / 4)


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit-yaml is not installed")
def test_the_same_weights_as_mergekit(models: Path, tmp_path: Path) -> None:
    recipes = {
        f"{without}-{source}": TWO % ("a", without) + f"base_model: a\ntokenizer_source: {source}\n"
        for without in ("mute", "wider")
        for source in ("base", "union")
    }
    run_mergekit(models, recipes, option="--copy-tokenizer")
    for name, recipe in recipes.items():
        out = merge(models, recipe, tmp_path / name)
        assert_same_weights(tensors_of(out), tensors_of(models / f"{name}.mergekit"))


def test_without_a_row_for_each_token_it_is_refused(models: Path, tmp_path: Path) -> None:
    recipe = TWO % ("a", "narrower") + "tokenizer_source: base\n"
    words = r"narrower has no tokenizer, and too few rows for the tokenizer of a[\s\S]*rows"
    with pytest.raises(InputError, match=words):
        merge(models, recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source", ["base", "union", "mute"])
def test_where_no_tokenizer_can_be_taken_it_is_refused(source: str, models: Path) -> None:
    pair = ("a", "mute") if source == "mute" else ("mute", "wider")
    problems = planned(models, TWO % pair + f"tokenizer_source: {source}\n")["problems"]
    assert "The model has no tokenizer: mute" in [problem["what"] for problem in problems]


def ending(models: Path, recipe: str, out: Path) -> list[str]:
    (models / "recipe.yaml").write_text(recipe)
    reporter = Told()
    with working_in(models):
        options = Options(state_dir=out.with_name("state"))
        Session(options, reporter).run(Path("recipe.yaml"), out)
    return reporter.notes


def test_an_output_without_a_tokenizer_is_told_before_and_after(
    models: Path, tmp_path: Path
) -> None:
    recipe = TWO % ("mute", "a")
    told = (
        "mute has no tokenizer, so the output has none: write 'tokenizer_source: a' to use "
        "the tokenizer of a"
    )
    assert told in planned(models, recipe)["notes"]
    assert ending(models, recipe, tmp_path / "out") == ["done", told]
    out = merge(models, recipe + "tokenizer_source: a\n", tmp_path / "as-told")
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (out, models / "a")]
    assert tokenizers[0].encode("A row [A]") == tokenizers[1].encode("A row [A]")
    assert json_of(out)["vocab_size"] == json_of(models / "a")["vocab_size"]
    torch.testing.assert_close(tensors_of(out), tensors_of(tmp_path / "out"))


def test_where_no_other_fits_the_users_own_is_asked_for(models: Path) -> None:
    notes = planned(models, "merge_method: passthrough\nmodels: [{model: wider}]\n")["notes"]
    assert any(
        "save the tokenizer that it was trained with into the output folder" in n for n in notes
    )


def test_models_without_tokens_need_none(tmp_path: Path) -> None:
    config = {"model_type": "vit", "num_hidden_layers": 2}
    shapes = {f"encoder.layer.{n}.output.weight": (8, 8) for n in range(2)}
    write_model(tmp_path / "a", random_tensors(shapes, 1), config)
    recipe = "merge_method: passthrough\nmodels: [{model: a}]\n"
    assert not any("tokenizer" in note for note in planned(tmp_path, recipe)["notes"])
    shutil.rmtree(tmp_path / "a")
    write_family(tmp_path)
    recipe = recipe.replace("model: a", "model: math")
    assert any("tokenizer" in note for note in planned(tmp_path, recipe)["notes"])


@pytest.mark.parametrize("progress", ["lines", "json"])
def test_the_command_says_so(progress: str, models: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(TWO % (models / "mute", models / "a"))
    words = ["run", "recipe.yaml", "out", "--progress", progress]
    done = subprocess.run(
        [sys.executable, "-m", "resumerge", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = "".join(done.stdout.splitlines()[-2:]) if progress == "json" else done.stderr
    assert "has no tokenizer, so the output has none" in said
