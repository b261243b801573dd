"""Promise: transformers opens a model with the tokenizer, vocabulary and head of its adapter."""

import json
from pathlib import Path

import pytest
import torch
from adapters import merged_by_peft, write_adapter, write_base
from merging import merge, tensors_of
from transformers import AutoModelForCausalLM

from resumerge.errors import InputError

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
TWO = (
    "merge_method: linear\nparameters: {weight: 0.5}\n"
    "models: [{model: base+adapter}, {model: base+other}]\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base = write_base(tmp_path / "base", "llama")
    for name in ("adapter", "other"):
        write_adapter(tmp_path / name, base, "llama", target_modules=["q_proj"])
    for name in ("tokenizer.json", "tokenizer_config.json", "merges.txt", "generation_config.json"):
        (base / name).write_text('"of the base"')
    return tmp_path


def files(out: Path) -> dict[str, str]:
    return {f.name: f.read_text() for f in out.iterdir() if f.suffix in (".json", ".txt", ".jinja")}


def test_the_bases_tokenizer_where_the_adapter_has_none(folder: Path) -> None:
    found = files(merge(folder, TWO, folder / "out"))
    for name in ("tokenizer.json", "tokenizer_config.json", "merges.txt", "generation_config.json"):
        assert found[name] == '"of the base"'
    assert "adapter_config.json" not in found
    assert json.loads(found["config.json"])["vocab_size"] == 48


def test_the_adapters_tokenizer_where_it_has_one_and_no_mixture_of_both(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / "adapter" / name).write_text('"of the adapter"')
    (folder / "adapter" / "all_results.json").write_text("{}")
    found = files(merge(folder, TWO, folder / "out"))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert found[name] == '"of the adapter"'
    assert found["generation_config.json"] == '"of the base"'
    assert not found.keys() & {"merges.txt", "all_results.json", "adapter_config.json"}


def test_a_chat_template_alone_is_no_tokenizer(folder: Path) -> None:
    (folder / "adapter" / "chat_template.jinja").write_text("of the adapter")
    found = files(merge(folder, TWO, folder / "out"))
    assert found["tokenizer.json"] == '"of the base"'
    assert "chat_template.jinja" not in found


@pytest.mark.parametrize("how", ["saved_whole", "adapted"])
def test_more_tokens_than_the_base_has(how: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "llama")
    options = {
        "saved_whole": {"modules_to_save": ["embed_tokens", "lm_head"]},
        "adapted": {"target_modules": ["embed_tokens", "lm_head"]},
    }[how]
    options = {"target_modules": ["q_proj"], **options}
    adapter = write_adapter(tmp_path / "adapter", base, "llama", rows=51, **options)
    out = merge(tmp_path, COPY, tmp_path / "out")
    ours, theirs = tensors_of(out), merged_by_peft(base, adapter, "llama", rows=51)
    assert ours["lm_head.weight"].shape == ours["model.embed_tokens.weight"].shape == (51, 16)
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-6, atol=1e-6)
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size == 51


def test_more_tokens_than_the_other_model_has_is_refused_with_both_counts(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "llama")
    write_adapter(
        tmp_path / "adapter",
        base,
        "llama",
        rows=51,
        target_modules=["q_proj"],
        modules_to_save=["embed_tokens", "lm_head"],
    )
    text = COPY.replace("passthrough", "linear").replace("]", ", {model: base}]")
    with pytest.raises(InputError, match=r"(?s)51 tokens, as in base\+adapter.*48 tokens in base"):
        merge(tmp_path, text, tmp_path / "out")


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    ],
)
def test_a_tied_head_that_the_adapter_changes_stands_on_its_own(
    options: dict, tmp_path: Path
) -> None:
    tied = write_base(tmp_path / "base", "llama", tie_word_embeddings=True)
    free = write_base(tmp_path / "untied", "llama", tie_word_embeddings=True)
    (free / "config.json").write_text(
        (free / "config.json")
        .read_text()
        .replace('"tie_word_embeddings": true', '"tie_word_embeddings": false')
    )
    from safetensors.torch import save_file

    before = tensors_of(tied)
    before["lm_head.weight"] = before["model.embed_tokens.weight"].clone()
    save_file(before, free / "model.safetensors", metadata={"format": "pt"})
    adapter = write_adapter(tmp_path / "adapter", free, "llama", **options)
    out = merge(tmp_path, COPY, tmp_path / "out")
    ours, theirs = tensors_of(out), merged_by_peft(free, adapter, "llama")
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-6, atol=1e-6)
    opened = AutoModelForCausalLM.from_pretrained(out)
    assert torch.equal(opened.lm_head.weight, ours["lm_head.weight"])
    assert torch.equal(opened.model.embed_tokens.weight, before["model.embed_tokens.weight"])


def test_names_in_the_file_may_lack_what_the_library_puts_before_them(tmp_path: Path) -> None:
    """GPT-2 on the Hub has ``h.0…`` where transformers has ``transformer.h.0…``."""
    from safetensors.torch import load_file, save_file

    base = write_base(tmp_path / "base", "gpt2")
    adapter = write_adapter(
        tmp_path / "adapter", base, "gpt2", target_modules=["c_attn", "c_proj"], bias="all"
    )
    theirs = merged_by_peft(base, adapter, "gpt2")
    short = {
        k.removeprefix("transformer."): v for k, v in load_file(base / "model.safetensors").items()
    }
    save_file(short, base / "model.safetensors", metadata={"format": "pt"})
    ours = tensors_of(merge(tmp_path, COPY, tmp_path / "out"))
    assert ours.keys() == short.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[f"transformer.{name}"], rtol=1e-6, atol=1e-6)


def test_the_card_names_both(folder: Path) -> None:
    card = (merge(folder, TWO, folder / "out") / "README.md").read_text()
    assert "`base` (a local folder" in card
    assert "with the LoRA adapter `adapter` (a local folder" in card
