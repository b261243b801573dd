"""The output loads in transformers whole: rows for every token, numbers of special tokens right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from merging import merge, tensors_of
from safetensors.torch import load_file
from tiny_tokenizers import CODE, FAMILIES, MIXED, write_tokenizer
from token_models import TOKENS, json_of, vocabulary, write_relatives, write_token_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    GPT2Config,
    T5Config,
)

UNION = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n" + (
    "tokenizer_source: union\n"
)


def load(folder: Path, kind: Any = AutoModelForCausalLM) -> Any:
    """Load a model, and check that transformers finds every tensor and no other."""
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_it_loads_and_reads_its_own_tokens(family: str, tmp_path: Path) -> None:
    write_relatives(tmp_path, family)
    recipe = UNION.replace("model: a", f"model: {family}-a").replace(
        "model: b", f"model: {family}-c"
    )
    out = merge(tmp_path, recipe, tmp_path / "out")
    model, tokenizer = load(out), AutoTokenizer.from_pretrained(out)
    assert len(tokenizer) <= model.config.vocab_size == json_of(out)["vocab_size"]
    ids = tokenizer(MIXED + " [A1] [C1]", return_tensors="pt")["input_ids"]
    assert torch.isfinite(model(ids[:, :60]).logits).all()


def test_a_padded_vocabulary_keeps_its_size(tmp_path: Path) -> None:
    """Rows without a token are merged by their number, and new tokens take their place first."""
    write_token_model(tmp_path / "a", "qwen", 1, padding=30, added=["[A]"])
    write_token_model(tmp_path / "b", "qwen", 2, padding=29, added=["[B]", "[B2]"])
    out = merge(tmp_path, UNION, tmp_path / "out")
    rows, tokens = json_of(tmp_path / "a")["vocab_size"], vocabulary(out)
    assert json_of(out)["vocab_size"] == rows
    assert max(tokens.values()) == max(vocabulary(tmp_path / "a").values()) + 2
    a, b, merged = (tensors_of(tmp_path / name)[TOKENS[0]] for name in ("a", "b", "out"))
    spare = slice(max(tokens.values()) + 1, rows)
    assert torch.allclose(merged[spare], (a[spare] + b[spare]) / 2)
    assert len(AutoTokenizer.from_pretrained(out)) <= load(out).config.vocab_size


@pytest.mark.parametrize("multiple", [64, 1])
def test_a_size_that_is_asked_for_is_had(multiple: int, tmp_path: Path) -> None:
    write_token_model(tmp_path / "a", "qwen", 1, padding=300, added=["[A]"])
    write_token_model(tmp_path / "b", "qwen", 2, added=["[B]", "[B2]"])
    recipe = UNION.replace("tokenizer_source: union", "tokenizer: {pad_to_multiple_of: %d}")
    out = merge(tmp_path, recipe % multiple, tmp_path / "out")
    needed = max(vocabulary(out).values()) + 1
    assert json_of(out)["vocab_size"] == -(-needed // multiple) * multiple
    assert len(load(out).get_input_embeddings().weight) == json_of(out)["vocab_size"]


def test_a_tied_head_stays_tied(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        write_token_model(
            tmp_path / name,
            "llama",
            number,
            config={"tie_word_embeddings": True},
            added=[f"[{name}]"],
        )
    out = merge(tmp_path, UNION, tmp_path / "out")
    assert "lm_head.weight" not in tensors_of(out)
    model = load(out)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert len(model.lm_head.weight) == json_of(out)["vocab_size"]


SMALL = {"vocab_size": 0, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
T5 = {"num_layers": 1, "d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "vocab_size": 0}
BART = {"d_model": 16, "max_position_embeddings": 64, "encoder_layers": 1, "decoder_layers": 1}
ARCHITECTURES = {
    "bert": ("wordpiece", BertConfig, {**SMALL, "intermediate_size": 32}, AutoModelForMaskedLM),
    "gpt2": ("gpt2", GPT2Config, {"n_layer": 1, "n_head": 2, "n_embd": 16}, AutoModelForCausalLM),
    "t5": ("unigram", T5Config, {**T5, "tie_word_embeddings": False}, AutoModelForSeq2SeqLM),
    "bart": (
        "gpt2",
        BartConfig,
        {**BART, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
        AutoModelForSeq2SeqLM,
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_tensor_with_a_row_a_token_is_found(name: str, tmp_path: Path) -> None:
    """Biases of heads, shared embeddings and own heads have a row a token; positions do not."""
    family, config, facts, kind = ARCHITECTURES[name]
    for number, letter in enumerate("ab"):
        folder = tmp_path / letter
        size = len(write_tokenizer(folder, family, added=[f"[{letter}]"] * (number + 1)))
        torch.manual_seed(number)
        kind.from_config(config(**{**facts, "vocab_size": size + 3 * number})).save_pretrained(
            folder
        )
    out = merge(tmp_path, UNION, tmp_path / "out")
    model = load(out, kind)
    assert len(model.get_input_embeddings().weight) == model.config.vocab_size
    a, b = (vocabulary(tmp_path / letter) for letter in "ab")
    before = [load_file(tmp_path / letter / "model.safetensors") for letter in "ab"]
    token = "[b]"
    assert token not in a
    for tensor, merged in tensors_of(out).items():
        if merged.shape != before[0][tensor].shape:
            number = vocabulary(out)[token]
            row = merged.squeeze(0)[number]  # bart has a bias of one row, [1, tokens]
            assert torch.allclose(row, before[1][tensor].squeeze(0)[b[token]]), tensor


def test_a_vocabulary_within_a_nested_config(tmp_path: Path) -> None:
    """The language model's vocab_size, and not another part's, becomes the output's."""
    sizes = []
    for number, name in enumerate("ab"):
        write_token_model(tmp_path / name, "qwen", number, added=[f"[{name}]"] * (number + 1))
        text = json_of(tmp_path / name)
        sizes.append(text["vocab_size"])
        vision = {"vocab_size": 99, "hidden_size": 8}
        nested = {"model_type": "llava", "text_config": text, "vision_config": vision}
        (tmp_path / name / "config.json").write_text(json.dumps(nested))
    config = json_of(merge(tmp_path, UNION, tmp_path / "out"))
    assert config["text_config"]["vocab_size"] == sizes[0] + 1
    assert config["vision_config"]["vocab_size"] == 99


def test_numbers_of_special_tokens_follow_the_tokenizer(tmp_path: Path) -> None:
    write_token_model(tmp_path / "a", "qwen", 1, special=["<|stop|>"])
    write_token_model(tmp_path / "b", "qwen", 2, corpus=CODE, special=["<|other|>", "<|stop|>"])
    a, b = vocabulary(tmp_path / "a"), vocabulary(tmp_path / "b")
    for name, tokens in (("a", a), ("b", b)):
        config = json_of(tmp_path / name)
        config |= {"eos_token_id": tokens["<|im_end|>"], "bos_token_id": None}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        generation = {
            "eos_token_id": [tokens["<|im_end|>"], tokens["<|stop|>"]],
            "pad_token_id": tokens["<|endoftext|>"],
            "temperature": 0.6,
        }
        (tmp_path / name / "generation_config.json").write_text(json.dumps(generation))
    assert a["<|stop|>"] != b["<|stop|>"]
    out = merge(tmp_path, UNION.replace("union", "b"), tmp_path / "out")
    assert json_of(out)["eos_token_id"] == b["<|im_end|>"]
    assert json_of(out, "generation_config.json") == json_of(
        tmp_path / "b", "generation_config.json"
    )
    united = merge(tmp_path, UNION, tmp_path / "united")
    assert json_of(united)["eos_token_id"] == a["<|im_end|>"]
    assert json_of(united, "generation_config.json")["eos_token_id"][1] == a["<|stop|>"]


def test_text_ends_where_the_tokenizers_own_model_ends_it(tmp_path: Path) -> None:
    """A base model with the tokenizer of a chat model stops at the chat model's end of a turn."""
    write_token_model(tmp_path / "a", "qwen", 1)
    write_token_model(tmp_path / "b", "qwen", 2, special=["<|stop|>"])
    a, b = vocabulary(tmp_path / "a"), vocabulary(tmp_path / "b")
    end, stop = b["<|endoftext|>"], b["<|stop|>"]
    facts = {
        "a": ({"eos_token_id": a["<|endoftext|>"], "pad_token_id": None}, {"temperature": 0.6}),
        "b": ({"eos_token_id": stop, "pad_token_id": end}, {"temperature": 0.9}),
    }
    facts["a"][1]["eos_token_id"] = a["<|endoftext|>"]
    facts["b"][1]["eos_token_id"] = [end, stop]
    for name, (config, generation) in facts.items():
        (tmp_path / name / "config.json").write_text(json.dumps(json_of(tmp_path / name) | config))
        (tmp_path / name / "generation_config.json").write_text(json.dumps(generation))
    out = merge(tmp_path, UNION.replace("union", "b"), tmp_path / "out")
    found = json_of(out)
    assert (found["eos_token_id"], found["pad_token_id"]) == (stop, end)
    assert json_of(out, "generation_config.json") == {
        "temperature": 0.6,
        "eos_token_id": [end, stop],
    }
    united = merge(tmp_path, UNION, tmp_path / "united")
    assert json_of(united)["eos_token_id"] == a["<|endoftext|>"]
