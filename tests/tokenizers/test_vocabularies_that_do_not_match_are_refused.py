"""Vocabularies that cannot be matched are refused, with the change to make; nothing is written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from merging import merge
from tiny_tokenizers import CODE
from token_models import write_token_model

from resumerge.errors import InputError

TWO = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: %s}, {model: %s}]\n"
WITHOUT_TRANSFORMERS = """
import sys
sys.modules["transformers"] = None
from resumerge.cli.main import main
sys.argv = ["resumerge", "run", "recipe.yaml", "out", "--state-dir", "state"]
main()
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, family in (("llama", "llama"), ("bytes", "qwen"), ("pieces", "unigram")):
        write_token_model(folder / name, family, 1)
    write_token_model(folder / "code", "llama", 1, corpus=CODE, added=["[C]"])
    write_token_model(folder / "mute", "llama", 1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / "mute" / name).unlink()
    write_token_model(folder / "torn", "llama", 1)
    (folder / "torn" / "tokenizer.json").write_text('{"model": {"vocab": {"a": "b"}}}')
    return folder


REFUSED = {
    "strangers": (
        TWO % ("llama", "bytes") + "tokenizer_source: union",
        (
            "cannot be combined into a union",
            "BPE, byte-level in bytes",
            "tokenizer_source: base",
            "line 4",
        ),
    ),
    "other-model-type": (
        TWO % ("llama", "pieces") + "tokenizer_source: union",
        ("cannot be combined into a union", "Unigram with ▁ for spaces", "tokenizer_source: base"),
    ),
    "other-size-and-no-option": (
        TWO % ("llama", "code"),
        ("Vocabularies differ in size", "tokenizer_source: base", "tokenizer_source: union"),
    ),
    "no-tokenizer": (
        TWO % ("mute", "llama") + "tokenizer_source: base",
        ("The model has no tokenizer", "mute", "tokenizer.json"),
    ),
    "damaged-tokenizer": (
        TWO % ("llama", "torn") + "tokenizer_source: base",
        ("The tokenizer is damaged", "torn/tokenizer.json", "'a': 'b'"),
    ),
    "no-such-token": (
        TWO % ("llama", "code") + 'tokenizer: {tokens: {"[C]": {source: llama}}}',
        ("llama has no row for the token '[C]'", "one of: code", "tokenizer.tokens.[C].source"),
    ),
    "no-such-number": (
        TWO % ("llama", "code")
        + "tokenizer: {tokens: {x: {source: {kind: model_token, model: code, token_id: 9999}}}}",
        ("code has no row for the token id 9999", "a token id below"),
    ),
    "several": (
        TWO % ("llama", "code")
        + "tokenizer: {tokens: {x1: {source: llama}, x2: {source: code}}}\nchat_template: chatlm",
        ("token 'x1'", "token 'x2'", "Did you mean 'chatml'"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, models: Path, tmp_path: Path) -> None:
    recipe, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        merge(models, recipe, tmp_path / "out")
    for word in words:
        assert word in str(caught.value)
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.state").exists()


def test_tokens_of_another_kind_are_matched_by_text_where_one_vocabulary_is_kept(
    models: Path, tmp_path: Path
) -> None:
    out = merge(models, TWO % ("llama", "bytes") + "tokenizer_source: base", tmp_path / "out")
    assert (out / "tokenizer.json").read_bytes() == (models / "llama/tokenizer.json").read_bytes()


def test_a_tokenizer_that_must_be_converted_needs_an_extra(models: Path, tmp_path: Path) -> None:
    """The message for a model with sentencepiece alone has the command that installs the extra."""
    shutil.copytree(models / "llama", tmp_path / "old")
    (tmp_path / "old" / "tokenizer.json").unlink()
    (tmp_path / "old" / "tokenizer.model").write_bytes(b"\x0a\x0e")
    (tmp_path / "recipe.yaml").write_text(TWO % ("old", "old/.") + "tokenizer_source: base")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRANSFORMERS], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'resumerge[sentencepiece]'" in done.stderr.replace("\n", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "recipe.yaml"]


def test_transformers_is_not_imported_where_there_is_a_tokenizer_json(
    models: Path, tmp_path: Path
) -> None:
    for name in ("llama", "code"):
        shutil.copytree(models / name, tmp_path / name)
    (tmp_path / "recipe.yaml").write_text(TWO % ("llama", "code") + "tokenizer_source: union")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRANSFORMERS], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "[C]" in json.loads((tmp_path / "out/tokenizer.json").read_text())["model"]["vocab"]


def test_a_tokenizer_that_changed_since_is_told(models: Path, tmp_path: Path) -> None:
    for name in ("llama", "code"):
        shutil.copytree(models / name, tmp_path / name)
    recipe = TWO % ("llama", "code") + "tokenizer_source: union"
    merge(tmp_path, recipe, tmp_path / "out")
    path = tmp_path / "code" / "tokenizer.json"
    path.write_text(path.read_text().replace("[C]", "[D]"))
    with pytest.raises(InputError, match=r"A source has changed since[\s\S]*tokenizer of code"):
        merge(tmp_path, recipe, tmp_path / "out")
