"""A model with nothing but a sentencepiece file has its tokens matched as any other."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import sentencepiece
from merging import merge, tensors_of
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model
from tiny_tokenizers import MIXED, PROSE
from transformers import AutoTokenizer


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `old`, and `new` with one token more, with a tokenizer.model but no tokenizer.json."""
    folder = tmp_path_factory.mktemp("models")
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE.split(". ")),
        model_writer=trained,
        model_type="bpe",
        vocab_size=340,
        byte_fallback=True,
        character_coverage=1.0,
        minloglevel=2,
    )
    for seed, name in enumerate(("old", "new")):
        size = 340 + seed
        config = {**LLAMA, "num_hidden_layers": 1, "vocab_size": size}
        path = write_model(folder / name, random_tensors(llama_shapes(config), seed), config)
        (path / "tokenizer.model").write_bytes(trained.getvalue())
        added = {"340": {"content": "[NEW]", "special": True}} if seed else {}
        facts = {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": added}
        (path / "tokenizer_config.json").write_text(json.dumps(facts))
    return folder


def test_union(models: Path, tmp_path: Path) -> None:
    recipe = (
        "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: old}, {model: new}]\n"
        "tokenizer_source: union\n"
    )
    out = merge(models, recipe, tmp_path / "out")
    tokenizer, source = (AutoTokenizer.from_pretrained(path) for path in (out, models / "old"))
    for text in (PROSE, MIXED):
        assert tokenizer.encode(text) == source.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == source.decode(source.encode(text))
    assert tokenizer.convert_tokens_to_ids("[NEW]") == 340
    assert len(tensors_of(out)["lm_head.weight"]) == 341


def test_kept_files_are_the_same_byte_for_byte(models: Path, tmp_path: Path) -> None:
    recipe = (
        "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: old}, {model: new}]\n"
        "tokenizer_source: old\n"
    )
    out = merge(models, recipe, tmp_path / "out")
    model = "tokenizer.model"
    assert (out / model).read_bytes() == (models / "old" / model).read_bytes()
    assert not (out / "tokenizer.json").exists()
