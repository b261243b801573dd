"""Promise: tokens have the numbers that a tokenizer's files give them, the first that gives one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resumerge.errors import InputError, Resumable
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.sources.types import Source
from resumerge.tokenizers.origin import has_tokenizer
from resumerge.tokenizers.required import read_tokenizers
from resumerge.tokenizers.vocabulary import Vocabulary, read_chat_template, read_vocabulary

PLAIN = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}}


def source(folder: Path, **files: Any) -> Source:
    """Write a model with these files (``__`` for the dot), as JSON unless they are text."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)
    return Source(
        ref=ModelRef(folder.name, str(folder)),
        kind="local",
        folder=folder,
        revision=None,
        config={},
        tensors={},
    )


def test_a_token_keeps_its_first_number_and_definition(tmp_path: Path) -> None:
    listed = [
        {"id": 1, "content": "b", "special": True},
        {"id": 2, "content": "c", "lstrip": True},
        {"id": 2, "content": "of a number that another has"},
        {"id": 7, "content": "a", "special": False},
    ]
    late = {
        "1": {"content": "b", "special": False},
        "2": {"content": "of that number too"},
        "3": {"content": "d", "__type": "AddedToken", "rstrip": True},
    }
    found = read_vocabulary(
        source(
            tmp_path,
            tokenizer__json={**PLAIN, "added_tokens": listed},
            tokenizer_config__json={"added_tokens_decoder": late},
        )
    )
    assert found.ids == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert found.added == {
        "b": {"content": "b", "special": True},
        "c": {"content": "c", "lstrip": True},
        "a": {"content": "a", "special": False},
        "d": {"content": "d", "rstrip": True},
    }


def test_numbers_that_no_token_has_are_few(tmp_path: Path) -> None:
    def of_two(largest: int) -> Vocabulary:
        facts = {"model": {"type": "BPE", "vocab": {"a": 0, "b": largest}}}
        return read_vocabulary(source(tmp_path, tokenizer__json=facts))

    assert of_two((1 << 18) + 2).ids["b"] == (1 << 18) + 2
    with pytest.raises(InputError, match="at most 262,144 unused ids"):
        of_two((1 << 18) + 3)


@pytest.mark.parametrize("number", [-1, 1 << 24, True, 1.0, "1", None])
@pytest.mark.parametrize("place", ["vocab", "added_tokens", "added_tokens_decoder"])
def test_what_cannot_be_a_number_of_a_token_is_refused(
    place: str, number: Any, tmp_path: Path
) -> None:
    facts: dict[str, Any] = {"model": {"type": "BPE", "vocab": {"a": 0}}}
    config: dict[str, Any] = {}
    if place == "vocab":
        facts["model"]["vocab"]["b"] = number
    elif place == "added_tokens":
        facts["added_tokens"] = [{"id": number, "content": "b"}]
    else:
        config["added_tokens_decoder"] = {json.dumps(number): {"content": "b"}}
    model = source(tmp_path, tokenizer__json=facts, tokenizer_config__json=config)
    with pytest.raises(InputError, match="damaged"):
        read_vocabulary(model)


def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    late = {"9" * 5000: {"content": "b"}}
    config = {"added_tokens_decoder": late}
    model = source(tmp_path, tokenizer__json=PLAIN, tokenizer_config__json=config)
    with pytest.raises(InputError, match="token ids"):
        read_vocabulary(model)


@pytest.mark.parametrize(
    ("model", "more", "kind"),
    [
        ("BPE", {"pre_tokenizer": {"type": "ByteLevel"}}, "BPE, byte-level"),
        ("BPE", {"decoder": {"type": "Metaspace"}}, "BPE with ▁ for spaces"),
        ("BPE", {"normalizer": {"type": "Prepend", "prepend": "▁"}}, "BPE with ▁ for spaces"),
        ("WordPiece", {"normalizer": None}, "WordPiece"),
    ],
)
def test_its_family_is_its_model_and_how_it_writes_blanks(
    model: str, more: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    facts = {"model": {"type": model, "vocab": {"a": 0}}, **more}
    assert read_vocabulary(source(tmp_path, tokenizer__json=facts)).kind == kind


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_one_that_changes_during_the_run_stops_it(file: str, tmp_path: Path) -> None:
    model = source(tmp_path, tokenizer__json=PLAIN, tokenizer_config__json={"eos_token": "a"})
    vocabulary = read_vocabulary(model)
    assert vocabulary.facts() == PLAIN
    before = (tmp_path / file).read_text()
    (tmp_path / file).write_text(before.replace('"a"', '"o"'))  # of the same length
    with pytest.raises(Resumable, match="changed during the run") as caught:
        vocabulary.facts()
    assert caught.value.reason == "source_changed"
    assert read_vocabulary(model).digest != vocabulary.digest
    (tmp_path / file).write_text(before)
    assert vocabulary.facts() == PLAIN


def test_the_template_is_that_of_the_first_place(tmp_path: Path) -> None:
    several = [{"name": "tools", "template": "3"}, {"name": "default", "template": "4"}]
    places: list[tuple[str, Any, str | None]] = [
        ("chat_template.jinja", "1", "1"),
        ("chat_template.json", {"chat_template": "2"}, "2"),
        ("tokenizer_config.json", {"chat_template": several}, "4"),
    ]
    files = {name.replace(".", "__"): content for name, content, _ in places}
    model = source(tmp_path, **files)
    for name, _, template in places:
        assert read_chat_template(model) == template
        (tmp_path / name).unlink()
    assert read_chat_template(model) is None
    source(tmp_path, tokenizer_config__json={"chat_template": several[:1]})
    assert read_chat_template(model) is None
    source(tmp_path, tokenizer_config__json={"chat_template": "5"})
    assert read_chat_template(model) == "5"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["tokenizer.json"], True),
        (["spiece.model"], True),
        (["vocab.txt", "special_tokens_map.json"], True),
        (["chat_template.jinja", "special_tokens_map.json", "added_tokens.json"], False),
        (["1_Words/spiece.model"], False),
        ([], False),
    ],
)
def test_what_is_a_tokenizer(files: list[str], expected: bool, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert has_tokenizer(source(tmp_path)) is expected


@pytest.mark.parametrize("template", [True, False])
def test_a_template_that_is_chosen_needs_the_first_models_tokenizer(
    template: bool, tmp_path: Path
) -> None:
    recipe = parse_recipe(
        "merge_method: linear\nmodels: [{model: mute}, {model: b}]\nchat_template: auto\n"
    )
    says = {"chat_template": "x"} if template else {}
    mute = source(tmp_path / "mute")
    b = source(tmp_path / "b", tokenizer__json=PLAIN, tokenizer_config__json=says)
    sources = dict(zip(recipe.merged_models, (mute, b)))
    if template:
        with pytest.raises(InputError, match="needs a tokenizer, but mute has none"):
            read_tokenizers(recipe, sources)
    else:
        found = read_tokenizers(recipe, sources)
        assert list(found.templates.values()) == [None, None]
        assert [str(ref) for ref in found.without] == ["mute"]
