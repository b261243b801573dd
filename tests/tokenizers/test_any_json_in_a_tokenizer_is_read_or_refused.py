"""Any JSON in any place of a tokenizer's files merges, or is refused with the file's name at the
beginning: never a traceback, never after the merge.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from merging import merge
from token_models import write_token_model

from resumerge.errors import InputError

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "config.json",
)
FAMILIES = ("qwen", "unigram", "wordpiece")
RECIPE = (
    "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    "tokenizer: {source: union, tokens: {new: {source: {kind: zero}}}}\n"
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 1 << 70)
    | st.floats()
    | st.text(max_size=3)
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
Step = str | int


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `a` and `b` of each family, whose tokens differ, with every file of a tokenizer."""
    root = tmp_path_factory.mktemp("models")
    for family in FAMILIES:
        for seed, name in enumerate("ab"):
            folder = root / family / name
            added = [f"[{name}]", "[both]"]
            write_token_model(folder, family, seed, added=added, special=[f"<{name}>"])
            facts = read(folder, "tokenizer.json")
            listed = {str(t["id"]): {**t} for t in facts["added_tokens"]}
            config = read(folder, "tokenizer_config.json")
            write(folder, "tokenizer_config.json", {**config, "added_tokens_decoder": listed})
            ids = {t["content"]: t["id"] for t in facts["added_tokens"]}
            write(folder, "added_tokens.json", ids)
            write(folder, "special_tokens_map.json", {"eos_token": f"<{name}>"})
            ending = {"eos_token_id": [1, 2], "pad_token_id": 0}
            write(folder, "generation_config.json", ending)
    return root


Case = tuple[str, str, str, list[int], Any]
"""Family, model, file, the way to a place in it, and what is put there."""


@settings(max_examples=150)
@given(
    case=st.tuples(
        st.sampled_from(FAMILIES),
        st.sampled_from("ab"),
        st.sampled_from(FILES),
        st.lists(st.integers(0, 400), min_size=1, max_size=4),
        VALUES,
    )
)
@example(case=("qwen", "a", "tokenizer.json", [], []))
@example(case=("qwen", "a", "tokenizer_config.json", [], {"added_tokens_decoder": None}))
@example(case=("qwen", "b", "tokenizer_config.json", [], {"added_tokens_decoder": {"1": "text"}}))
@example(
    case=("qwen", "b", "tokenizer_config.json", [], {"added_tokens_decoder": {"9" * 5000: {}}})
)
@example(case=("qwen", "b", "tokenizer_config.json", [], {"added_tokens_decoder": 0}))
@example(case=("qwen", "a", "added_tokens.json", [], []))
def test_it_merges_or_is_refused_before_anything_is_computed(
    case: Case, models: Path, workplace: Path
) -> None:
    family, model, file, way, value = case
    here = workplace / "case"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(models / family, here)
    write(here / model, file, replaced(read(here / model, file), way, value))
    try:
        merge(here, RECIPE, here / "out")
    except InputError as error:
        assert model in str(error)
        assert not (here / "out").exists() and not (here / "out.state").exists()


IN_PLACE: dict[str, tuple[tuple[Step, ...], Any]] = {
    "ids-are-lists": (("model", "vocab"), {"a": [1]}),
    "ids-leave-out-millions": (("model", "vocab"), {"a": (1 << 24) - 1}),
    "ids-are-true": (("model", "vocab"), {"a": True}),
    "pieces-are-lists": (("model", "vocab"), [[["a"], 0.5]]),
    "scores-are-texts": (("model", "vocab"), [["a", "0.5"]]),
    "scores-are-not-numbers": (("model", "vocab"), [["a", float("nan")]]),
    "scores-are-endless": (("model", "vocab"), [["a", 10**400]]),
    "pieces-are-texts": (("model", "vocab"), ["ab"]),
    "the-model-is-a-list": (("model",), []),
    "merges-are-numbers": (("model", "merges"), [1, 2]),
    "merges-have-one-side": (("model", "merges"), [["a"]]),
    "merges-are-a-text": (("model", "merges"), "ab"),
    "added-tokens-are-texts": (("added_tokens",), ["ab"]),
    "added-tokens-have-lists-for-ids": (("added_tokens",), [{"content": "q", "id": [1]}]),
    "added-tokens-have-no-ids": (("added_tokens",), [{"content": "q"}]),
    "added-tokens-have-odd-contents": (("added_tokens",), [{"content": {}, "id": 1}]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_the_file_is_named(name: str, models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "qwen", tmp_path / "case")
    path, value = IN_PLACE[name]
    for model in "ab":  # merges are read where both have some
        facts = read(tmp_path / "case" / model, "tokenizer.json")
        inner = facts
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        if path == ("model", "merges") and model == "a":
            facts["model"]["vocab"] = {}
        write(tmp_path / "case" / model, "tokenizer.json", facts)
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        merge(tmp_path / "case", RECIPE, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.state").exists()


def test_a_vocabulary_that_has_to_be_converted_names_its_files(
    models: Path, tmp_path: Path
) -> None:
    shutil.copytree(models / "qwen", tmp_path / "case")
    (tmp_path / "case" / "b" / "tokenizer.json").unlink()
    write(tmp_path / "case" / "b", "vocab.json", {"a": [1]})
    (tmp_path / "case" / "b" / "merges.txt").write_text("a b\n")
    with pytest.raises(InputError, match=r"cannot be converted[\s\S]*vocab\.json"):
        merge(tmp_path / "case", RECIPE, tmp_path / "out")


def test_code_beside_a_tokenizer_is_not_executed(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may answer yes out of habit where transformers asks whether to run the code."""
    monkeypatch.setattr("builtins.input", lambda *asked: "y")
    shutil.copytree(models / "qwen", tmp_path / "case")
    folder = tmp_path / "case" / "b"
    (folder / "tokenizer.json").unlink()
    write(folder, "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["own.Own", None]}})
    (folder / "own.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\nclass Own: pass\n")
    with pytest.raises(InputError, match="cannot be converted"):
        merge(tmp_path / "case", RECIPE, tmp_path / "out")
    assert not (tmp_path / "executed").exists()


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value))


def replaced(document: Any, way: list[int], value: Any) -> Any:
    """Return the document with another value at the end of a path of choices."""
    if not way or not isinstance(document, dict | list) or not document:
        return value
    document = copy.copy(document)
    keys = list(document) if isinstance(document, dict) else range(len(document))
    key: Any = keys[way[0] % len(keys)]
    document[key] = replaced(document[key], way[1:], value)
    return document
