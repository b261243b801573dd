"""Promise: the tokenizer in a GGUF file makes the tokens of the model's own, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, TokenType
from gguf_outputs import LLAMA_3, QWEN_2, texts, write_bytes, write_checkpoint, write_pieces
from merging import merge

from resumerge.errors import InputError

RECIPE = "merge_method: passthrough\nmodels: [{model: model}]\n"


def metadata(path: Path) -> Mapping[str, Any]:
    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


def test_transformers_makes_the_same_tokens_of_it(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    write_checkpoint(tmp_path / "model")
    merge(tmp_path, RECIPE, tmp_path / "model.gguf")
    before = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    after = AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    for text in texts():
        assert (
            after(text, add_special_tokens=False)["input_ids"]
            == before.encode(text, add_special_tokens=False).ids
        ), repr(text)


def test_scores_join_pieces_as_merges_do(tmp_path: Path) -> None:
    """llama.cpp joins the two neighbours of the highest score, with the result of the merges."""
    from tokenizers import Tokenizer

    write_checkpoint(tmp_path / "model", "mistral")
    values = metadata(merge(tmp_path, RECIPE, tmp_path / "model.gguf"))
    before = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    tokens = values["tokenizer.ggml.tokens"]
    ids = {token: number for number, token in enumerate(tokens)}
    scores, types = values["tokenizer.ggml.scores"], values["tokenizer.ggml.token_type"]
    assert values["tokenizer.ggml.add_space_prefix"] is True
    for text in texts():
        if "<tool>" in text or "</s>" in text:
            continue
        pieces = list("\u2581" + text.replace(" ", "\u2581"))
        while True:
            joined = [
                (-scores[ids[a + b]], place)
                for place, (a, b) in enumerate(pairwise(pieces))
                if a + b in ids and types[ids[a + b]] == TokenType.NORMAL
            ]
            if not joined:
                break
            _, place = min(joined)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        found = [
            number
            for piece in pieces
            for number in (
                [ids[piece]]
                if piece in ids
                else [ids[f"<0x{byte:02X}>"] for byte in piece.encode()]
            )
        ]
        assert found == before.encode(text, add_special_tokens=False).ids, repr(text)


def test_what_is_said_of_tokens(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    values = metadata(merge(tmp_path, RECIPE, tmp_path / "model.gguf"))
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    own = json.loads((tmp_path / "model" / "tokenizer.json").read_text())
    assert values["tokenizer.ggml.model"] == "gpt2"
    assert values["tokenizer.ggml.pre"] == "llama-bpe"
    assert len(tokens) == values["llama.vocab_size"] == 640
    for token, number in own["model"]["vocab"].items():
        assert tokens[number] == token
    places = (0, 1, 3, tokens.index("<tool>"), 639)
    kinds = {tokens[n]: TokenType(types[n]).name for n in places}
    assert kinds == {
        "<pad>": "CONTROL",
        "<s>": "CONTROL",
        "<|user|>": "CONTROL",
        "<tool>": "USER_DEFINED",
        "[PAD639]": "UNUSED",
    }
    merges = [" ".join(merge) for merge in own["model"]["merges"]]
    assert values["tokenizer.ggml.merges"] == merges
    special = {"bos_token_id": 1, "eos_token_id": 2, "padding_token_id": 0}
    special |= {"add_bos_token": True, "add_eos_token": False}
    for key, value in special.items():
        assert values[f"tokenizer.ggml.{key}"] == value, key
    settings = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert values["tokenizer.chat_template"] == settings["chat_template"]


@pytest.mark.parametrize(
    ("expression", "digits", "name"),
    [
        (LLAMA_3, False, "llama-bpe"),
        (QWEN_2, False, "qwen2"),
        (None, False, "gpt-2"),
        (None, True, "smollm"),
    ],
)
def test_the_pre_tokenizer_is_known_by_its_expressions(
    expression: str | None, digits: bool, name: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "model")
    write_bytes(tmp_path / "model", expression, digits=digits)
    values = metadata(merge(tmp_path, RECIPE, tmp_path / "model.gguf"))
    assert values["tokenizer.ggml.pre"] == name


def _other_expression(facts: dict[str, Any]) -> None:
    facts["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+"


def _lower_case(facts: dict[str, Any]) -> None:
    facts["normalizer"] = {"type": "Lowercase"}


def _a_list_of_nothing(facts: dict[str, Any]) -> None:
    facts["post_processor"]["single"] = [{"SpecialToken": [3]}, 4]


def _strange_steps(facts: dict[str, Any]) -> None:
    facts["pre_tokenizer"]["pretokenizers"] = {"a": 1}


def _words(facts: dict[str, Any]) -> None:
    facts["model"]["type"] = "WordPiece"


def _two_tokens_before(facts: dict[str, Any]) -> None:
    facts["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "</s>", "type_id": 0}})


def _fewer_merges(facts: dict[str, Any]) -> None:
    facts["model"]["merges"].pop(3)


def _no_byte(facts: dict[str, Any]) -> None:
    vocab = facts["model"]["vocab"]
    vocab["<0xzz>"] = vocab.pop("<0x41>")


@pytest.mark.parametrize(
    ("change", "pieces", "where"),
    [
        (_other_expression, False, "pre_tokenizer"),
        (_lower_case, False, "normalizer"),
        (_words, False, "model.type"),
        (_two_tokens_before, False, "post_processor"),
        (_a_list_of_nothing, False, "post_processor"),
        (_strange_steps, False, "pre_tokenizer"),
        (_fewer_merges, True, "model.merges"),
        (_lower_case, True, "normalizer and pre_tokenizer"),
        (_no_byte, True, "model.vocab"),
    ],
)
def test_what_llama_cpp_would_tokenise_otherwise_is_refused(
    change: Callable[[dict[str, Any]], None], pieces: bool, where: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "model")
    if pieces:
        write_pieces(tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))
    with pytest.raises(InputError, match="The tokenizer cannot be written as GGUF") as error:
        merge(tmp_path, RECIPE, tmp_path / "model.gguf")
    assert error.value.problems[0].where.endswith(f"tokenizer.json, {where}")
    assert not (tmp_path / "model.gguf").exists()


def test_a_template_that_is_no_text_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"chat_template": "a\\ud800"}')
    with pytest.raises(InputError, match="metadata of the model cannot be written"):
        merge(tmp_path, RECIPE, tmp_path / "model.gguf")


def test_a_vocabulary_that_a_recipe_makes_is_written(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    recipe = RECIPE + "tokenizer: {source: model, tokens: {'<|extra|>': {source: {kind: zero}}}}\n"
    values = metadata(merge(tmp_path, recipe, tmp_path / "model.gguf"))
    tokens = values["tokenizer.ggml.tokens"]
    rows = values["llama.vocab_size"]
    assert "<|extra|>" in tokens and len(tokens) == rows


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [("llama", "phi3.gguf", "Phi_3"), ("llama", "my.gguf", "my")],
)
def test_a_name_does_not_change_how_text_is_split(
    name: str, file: str, expected: str, tmp_path: Path
) -> None:
    """llama.cpp strips spaces after special tokens of models that are called Phi-3."""
    write_checkpoint(tmp_path / "model", name)
    values = metadata(merge(tmp_path, RECIPE, tmp_path / file))
    assert values["general.name"] == expected
    assert np.array_equal(values["general.architecture"], "llama")
