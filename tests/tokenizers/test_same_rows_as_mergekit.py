"""Every token's row in embedding and head is what mergekit 0.1.5 writes, within 1e-5 in float32.

Rows are compared token by token, because mergekit's numbers of new tokens differ between runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from beside_mergekit import MERGEKIT, run_mergekit
from merging import merge, tensors_of
from tiny_tokenizers import FAMILIES
from token_models import TOKENS, json_of, vocabulary, write_relatives

pytestmark = pytest.mark.skipif(MERGEKIT is None, reason="mergekit-yaml is not installed")

ALL = ("llama-a", "llama-b", "llama-c")
TOKENS_SET = """
tokenizer:
  source: union
  tokens:
    "[A1]": {source: {kind: zero}}
    shared: {source: llama-b, force: true}
    "[B1]": {source: llama-b}
    "[new]": {source: {kind: model_token, model: llama-b, token: "[B1]"}}
    "[new2]": {source: {kind: model_token, model: llama-b, token_id: 7}, force: true}
    "<|spA|>": {source: {kind: zero}, force: true}
    "[C1]": {source: llama-c}
"""
SLICES = """merge_method: passthrough
dtype: float32
slices:
  - sources: [{model: qwen-a, layer_range: [0, 1]}]
  - sources: [{model: qwen-b, layer_range: [0, 1]}]
tokenizer_source: union
"""


def recipe(models: tuple[str, ...], rest: str, method: str = "linear") -> str:
    entries = [
        f"  - {{model: {model}, parameters: {{weight: {weight}, density: 1}}}}\n"
        for model, weight in zip(models, (1, 3, 5))
    ]
    return f"merge_method: {method}\ndtype: float32\nmodels:\n{''.join(entries)}{rest}\n"


RECIPES = {
    **{
        f"{family}-{name}": recipe(tuple(f"{family}-{letter}" for letter in letters), rest)
        for family in FAMILIES
        for name, letters, rest in (
            ("union", "ab", "tokenizer_source: union"),
            ("union-of-strangers", "abc", f"tokenizer_source: union\nbase_model: {family}-c"),
            ("base", "ac", f"tokenizer_source: base\nbase_model: {family}-a"),
        )
    },
    "union-without-base": recipe(ALL, "tokenizer_source: union"),
    "model": recipe(("llama-a", "llama-c"), "tokenizer_source: llama-b"),
    "padded-base": recipe(("llama-c", "llama-a"), "tokenizer_source: base\nbase_model: llama-c"),
    "padding": recipe(ALL, "tokenizer: {source: union, pad_to_multiple_of: 64}"),
    "padding-ties": recipe(ALL, "tokenizer: {pad_to_multiple_of: 64}\nbase_model: llama-a", "ties"),
    "tokens": recipe(ALL, TOKENS_SET + "base_model: llama-a"),
    "slerp": "merge_method: slerp\ndtype: float32\nbase_model: gpt2-a\nparameters: {t: 0.3}\n"
    "models: [{model: gpt2-a}, {model: gpt2-c}]\ntokenizer_source: union\n",
    "dare": recipe(
        ("qwen-a", "qwen-c"), "base_model: qwen-b\ntokenizer_source: union", "dare_ties"
    ),
    "slices": SLICES,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the models, and beside them what mergekit makes of every recipe."""
    folder = tmp_path_factory.mktemp("models")
    for family in FAMILIES:
        write_relatives(folder, family)
    run_mergekit(folder, RECIPES, option="--copy-tokenizer")
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_same_rows(name: str, models: Path, tmp_path: Path) -> None:
    out, beside = merge(models, RECIPES[name], tmp_path / "out"), models / f"{name}.mergekit"
    ours, theirs = tensors_of(out), tensors_of(beside)
    assert ours.keys() == theirs.keys()
    here, there = vocabulary(out), vocabulary(beside)
    assert here.keys() == there.keys()
    assert sorted(here.values()) == sorted(there.values())
    for tensor, expected in theirs.items():
        found = ours[tensor]
        if tensor in TOKENS:
            rest = len(here) if len(found) == len(expected) else None
            padding = slice(rest, len(found) if rest else 0)
            found = torch.cat([found[[here[t] for t in there]], found[padding]])
            expected = torch.cat([expected[[there[t] for t in there]], expected[padding]])
        close = torch.isclose(found, expected, 1e-5, 1e-6 * float(expected.abs().max()))
        assert close.all(), f"{tensor}: {int((~close).sum())} of {close.numel()}"


def test_what_is_asked_for_has_mergekits_size(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPES["padding"], tmp_path / "out")
    assert json_of(out)["vocab_size"] == json_of(models / "padding.mergekit")["vocab_size"] == 512
