"""Every chat template that a recipe can ask for is written, and renders in transformers."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
from beside_mergekit import MERGEKIT
from jinja2 import TemplateError
from merging import merge
from tiny_tokenizers import CHAT
from token_models import write_token_model
from transformers import AutoTokenizer

from resumerge.errors import InputError
from resumerge.tokenizers.chat_template import BUILT_IN

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Grüße, 世界!"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye."},
]
RECIPE = (
    "merge_method: linear\nparameters: {weight: 1}\n"
    "models: [{model: a}, {model: b}, {model: c}]\nchat_template: "
)
EXPECTED = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGrüße, 世界!<|im_end|>\n"
    "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nGrüße, 世界!<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "alpaca": "<s>Be brief.\n\n### Instruction:\nGrüße, 世界!\n\n### Response:\nHello.</s>\n\n"
    "### Instruction:\nBye.\n\n### Response:\n",
    "mistral": "<s> [INST] Be brief.\n\nGrüße, 世界! [/INST] Hello.</s> [INST] Bye. [/INST]",
    "exaone": "[|system|]Be brief.[|endofturn|]\n[|user|]Grüße, 世界!\n"
    "[|assistant|]Hello.[|endofturn|]\n[|user|]Bye.\n[|assistant|]",
}


WITHOUT_A_SYSTEM = {
    "chatml": "<|im_start|>user\nGrüße, 世界!<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n",
    "llama3": "<s><|start_header_id|>user<|end_header_id|>\n\nGrüße, 世界!<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>",
    "alpaca": "<s>### Instruction:\nGrüße, 世界!\n\n### Response:\nHello.</s>",
    "mistral": "<s> [INST] Grüße, 世界! [/INST] Hello.</s>",
    "exaone": "[|system|][|endofturn|]\n[|user|]Grüße, 世界!\n[|assistant|]Hello.[|endofturn|]\n",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `a` without a chat template, and `b` and `c` with the same one."""
    folder = tmp_path_factory.mktemp("models")
    write_token_model(folder / "a", "llama", 1, size=20)
    for seed, name in enumerate("bc"):
        write_token_model(folder / name, "llama", seed, size=20, chat_template=CHAT)
    return folder


def rendered(folder: Path, talk: list[dict[str, str]] = TALK, *, answer: bool = True) -> str:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=answer)
    assert tokenizer.apply_chat_template(talk, add_generation_prompt=answer)
    return str(text)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in(name: str, models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPE + name, tmp_path / "out")
    assert rendered(out) == EXPECTED[name]
    assert rendered(out, TALK[1:3], answer=False) == WITHOUT_A_SYSTEM[name]


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
@pytest.mark.parametrize("name", BUILT_IN)
def test_where_mergekits_differ(name: str, models: Path, tmp_path: Path) -> None:
    """The page docs/coming-from-mergekit.md names the templates that differ."""
    package = importlib.util.find_spec("mergekit")
    if package is None or package.origin is None:
        pytest.skip("mergekit is in another environment")
    shutil.copytree(models / "a", tmp_path / "a")
    theirs = Path(package.origin).parent / "_data" / "chat_templates" / f"{name}.jinja"
    shutil.copy(theirs, tmp_path / "a" / "chat_template.jinja")
    assert (rendered(tmp_path / "a") == EXPECTED[name]) == (name in ("chatml", "mistral"))


@pytest.mark.parametrize("talk", [TALK[1:2] * 2, TALK[2:3], [TALK[1], TALK[0]]])
def test_mistral_refuses_what_its_models_refuse(
    talk: list[dict[str, str]], models: Path, tmp_path: Path
) -> None:
    out = merge(models, RECIPE + "mistral", tmp_path / "out")
    with pytest.raises(TemplateError, match="was expected"):
        rendered(out, talk)


def test_auto_takes_the_most_common(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPE + "auto", tmp_path / "out")
    assert rendered(out) == rendered(models / "b")
    assert not (out / "chat_template.jinja").exists(), "two places for one template"


def test_a_template_of_the_recipes_own(models: Path, tmp_path: Path) -> None:
    out = merge(models, RECIPE + "'{{ messages[0].content | upper }}'", tmp_path / "out")
    assert rendered(out) == "BE BRIEF."


@pytest.mark.parametrize("tools", [None, [{"type": "function"}]])
def test_a_template_that_is_asked_for_goes_before_all_that_the_model_has(
    tools: Any, models: Path, tmp_path: Path
) -> None:
    shutil.copytree(models / "b", tmp_path / "b")
    (tmp_path / "b" / "additional_chat_templates").mkdir()
    (tmp_path / "b" / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    recipe = "merge_method: passthrough\nmodels: [{model: b}]\nchat_template: chatml\n"
    out = merge(tmp_path, recipe, tmp_path / "out")
    tokenizer: Any = AutoTokenizer.from_pretrained(out)
    assert (
        tokenizer.apply_chat_template(TALK[1:3], tools=tools, tokenize=False)
        == (WITHOUT_A_SYSTEM["chatml"])
    )


def test_the_tokenizers_own_comes_along(models: Path, tmp_path: Path) -> None:
    recipe = RECIPE.replace("chat_template: ", "tokenizer_source: b\n")
    assert rendered(merge(models, recipe, tmp_path / "out")) == rendered(models / "b")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("chatlm", "Did you mean 'chatml'"),
        ("'{{ messages'", "not valid Jinja"),
        ("3", "not a chat"),
    ],
)
def test_one_that_cannot_be_is_refused(
    asked: str, words: str, models: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        merge(models, RECIPE + asked, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_template_in_a_source_is_told_on_resume(models: Path, tmp_path: Path) -> None:
    """The template decides the output, so that a finished run reports a change of it."""
    write_token_model(tmp_path / "a", "llama", 1, size=20, chat_template=CHAT)
    recipe = "merge_method: passthrough\nmodels: [{model: a}]\nchat_template: auto\n"
    merge(tmp_path, recipe, tmp_path / "out")
    (tmp_path / "a" / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(InputError, match="chat template"):
        merge(tmp_path, recipe, tmp_path / "out")
