"""Encoding and decoding with the output's tokenizer give what the source's tokenizer gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from merging import merge
from tiny_tokenizers import CODE, FAMILIES, MIXED, PROSE
from token_models import json_of, vocabulary, write_relatives, write_token_model
from transformers import AutoTokenizer

CLASSES = {
    "llama": "LlamaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "qwen": "Qwen2Tokenizer",
    "unigram": "T5Tokenizer",
    "wordpiece": "BertTokenizer",
}


@pytest.fixture(scope="module", params=FAMILIES)
def relatives(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `a`, `b` and `c` of one family of tokenizers."""
    family = str(request.param)
    folder = write_relatives(tmp_path_factory.mktemp(family), family)
    for letter in "abc":
        (folder / f"{family}-{letter}").rename(folder / letter)
        if family in ("llama", "qwen"):  # as saved by classes of their own
            _reclass(folder / letter, CLASSES[family])
    return folder


def _reclass(folder: Path, name: str) -> None:
    config = json_of(folder, "tokenizer_config.json")
    config["tokenizer_class"] = name
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def linear(models: Iterable[str], rest: str) -> str:
    listed = "".join(f"  - {{model: {model}, parameters: {{weight: 1}}}}\n" for model in models)
    return f"merge_method: linear\nmodels:\n{listed}{rest}\n"


def spoken(tokenizer: Any, text: str) -> tuple[list[str], str, str]:
    """Return the tokens of a text, and its decoded text with and without special tokens."""
    ids = tokenizer.encode(text)
    return (
        tokenizer.convert_ids_to_tokens(ids),
        tokenizer.decode(ids),
        tokenizer.decode(ids, skip_special_tokens=True),
    )


def test_union_of_relatives_speaks_like_each(relatives: Path, tmp_path: Path) -> None:
    out = merge(relatives, linear("ab", "tokenizer_source: union"), tmp_path / "out")
    united = AutoTokenizer.from_pretrained(out)
    for letter, own in (("a", "[A1] and<|spA|>"), ("b", "[B1]<|spB|> or <|x|>")):
        source = AutoTokenizer.from_pretrained(relatives / letter)
        for text in (MIXED, PROSE, CODE, f"{PROSE[:70]} {own} shared. {MIXED}"):
            assert spoken(united, text) == spoken(source, text)
    a = vocabulary(relatives / "a")
    assert {token: united.get_vocab()[token] for token in a} == a, "the host's numbers changed"


def test_union_of_strangers_speaks_like_the_base(relatives: Path, tmp_path: Path) -> None:
    recipe = linear("abc", "tokenizer_source: union\nbase_model: a")
    united = AutoTokenizer.from_pretrained(merge(relatives, recipe, tmp_path / "out"))
    source = AutoTokenizer.from_pretrained(relatives / "a")
    every = {token for letter in "abc" for token in vocabulary(relatives / letter)}
    assert every <= united.get_vocab().keys()
    for text in (PROSE, f"{PROSE[:70]} [A1] and<|spA|> shared"):
        assert spoken(united, text) == spoken(source, text)
    if "wordpiece" not in str(relatives):  # which cuts off the longest piece that there is
        assert spoken(united, MIXED)[1:] == spoken(source, MIXED)[1:]
    new = united.convert_ids_to_tokens(united.encode("x [C1] y <|spB|> z"))
    assert {"[C1]", "<|spB|>"} <= set(new)


@pytest.mark.parametrize("letter", "ac")
def test_a_tokenizer_that_is_kept_is_the_sources_byte_for_byte(
    relatives: Path, tmp_path: Path, letter: str
) -> None:
    out = merge(relatives, linear("ac", f"tokenizer_source: {letter}"), tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (out / name).read_bytes() == (relatives / letter / name).read_bytes()


def test_tokens_of_the_recipe_are_matched_whole(relatives: Path, tmp_path: Path) -> None:
    zero = "{source: {kind: zero}}"
    tokens = f'{{"<|im_start|>": {zero}, "[New]": {zero}, "[B1]": {{source: b}}}}'
    recipe = linear("ab", f"tokenizer: {{source: base, tokens: {tokens}}}\nbase_model: a")
    tokenizer = AutoTokenizer.from_pretrained(merge(relatives, recipe, tmp_path / "out"))
    cut = tokenizer.convert_ids_to_tokens(tokenizer.encode("of<|im_start|>two [B1]"))
    assert {"<|im_start|>", "[B1]"} <= set(cut)
    for text, known in (("of[New]two", True), ("of[new]two", False)):  # not in another case
        cut = tokenizer.convert_ids_to_tokens(tokenizer.encode(text))
        assert ("[New]" in cut) is known
    source = AutoTokenizer.from_pretrained(relatives / "a")
    assert spoken(tokenizer, MIXED) == spoken(source, MIXED)


def test_a_vocabulary_made_from_the_bases_brings_its_merges(tmp_path: Path) -> None:
    """A tokenizer that continues the base's merges cuts text as it does by itself."""
    write_token_model(tmp_path / "base", "gpt2", 1, size=40)
    write_token_model(tmp_path / "longer", "gpt2", 2, size=120)
    recipe = linear(("base", "longer"), "tokenizer_source: union\nbase_model: base")
    united = AutoTokenizer.from_pretrained(merge(tmp_path, recipe, tmp_path / "out"))
    longer = AutoTokenizer.from_pretrained(tmp_path / "longer")
    base = AutoTokenizer.from_pretrained(tmp_path / "base")
    for text in (PROSE, MIXED, CODE):
        assert spoken(united, text) == spoken(longer, text)
    assert len(united.encode(PROSE)) < len(base.encode(PROSE))


def test_files_that_only_an_old_tokenizer_reads_stay_in_step(tmp_path: Path) -> None:
    """vocab.json and merges.txt are dropped where they would lack tokens, and kept where not."""
    for name, added in (("a", "[A]"), ("b", "[B]")):
        folder = write_token_model(tmp_path / name, "gpt2", 1, added=[added])
        (folder / "vocab.json").write_text("{}")
        (folder / "merges.txt").write_text("")
        (folder / "added_tokens.json").write_text(json.dumps({added: vocabulary(folder)[added]}))
    write_token_model(tmp_path / "c", "gpt2", 1, corpus=CODE)
    near = merge(tmp_path, linear("ab", "tokenizer_source: union"), tmp_path / "near")
    assert json_of(near, "added_tokens.json") == {
        token: vocabulary(near)[token] for token in ("[A]", "[B]")
    }
    assert (near / "vocab.json").exists()
    far = merge(tmp_path, linear("ac", "tokenizer_source: union"), tmp_path / "far")
    assert not (far / "vocab.json").exists() and not (far / "merges.txt").exists()
    AutoTokenizer.from_pretrained(far)
