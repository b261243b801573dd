"""The rule that chooses tokenizers, configs and templates, and nothing that is weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from resumerge.sources.companions import LARGEST, companion_files, folder_companions


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer.model.v3",
        "merges.txt",
        "qwen.tiktoken",
        "source.spm",
        "bpe.codes.bpe",
        "chat_template.jinja",
        "additional_chat_templates/tools.jinja",
        "modeling_own.py",
        "1_Pooling/config.json",
        "2_Dense/model.safetensors",
        "preprocessor_config.json",
        "processor_config.json",
        "video_preprocessor_config.json",
        "LICENSE.txt",
    ],
)
def test_chosen(name: str) -> None:
    assert companion_files({name: 10}) == [name]


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "pytorch_model.bin",
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
        "onnx/config.json",
        "openvino/openvino_config.json",
        "openvino_int8/config.json",
        "original/params.json",
        "checkpoint-500/config.json",
        "README.md",
        "readme.txt",
        ".gitattributes",
        ".cache/config.json",
        "a/b/config.json",
        "../config.json",
        "/etc/config.json",
        "..\\config.json",
        "training_args.bin",
        "trainer_state.json",
        "image.png",
        "gguf/config.json",
        "assets/numbers.json",
        "runs/events.json",
        "all_results.json",
        "requirements.txt",
        "mergekit_config.yml",
        "adapter_config.json",
        "model.gguf",
    ],
)
def test_left_out(name: str) -> None:
    assert companion_files({name: 10}) == []


def test_file_over_100_mb_is_left_out() -> None:
    assert companion_files({"vocab.json": LARGEST, "dump.json": LARGEST + 1}) == ["vocab.json"]


def test_same_rule_for_a_local_folder(tmp_path: Path) -> None:
    for name in ("config.json", "1_Pooling/config.json", "a/b/c.json", "model.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert folder_companions(tmp_path) == ["1_Pooling/config.json", "config.json"]
