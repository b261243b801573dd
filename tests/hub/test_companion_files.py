"""The rule that chooses tokenizers, configs and templates, and nothing that is weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from resumerge.sources.companions import LARGEST, companion_files, folder_companions, outward_links


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
        "preprocessor_config.json",
        "processor_config.json",
        "video_preprocessor_config.json",
        "LICENSE.txt",
        "NOTICE",
        "sentence_xlm-roberta_config.json",
        "config_sentence_transformers.json",
        "vocab-src.json",
        "bpe.codes",
        "tekken.json",
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
        ".hidden.model",
        "1_Pooling/.hidden.tiktoken",
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
        "secrets.json",
        "dataset.jsonl",
        "recipe.yaml",
        "notes.txt",
        "data_config.json",
        "model.onnx.json",
        "quantization_config.json",
        "model.safetensors.index.fp32.json",
        "additional_chat_templates/keys.json",
        "1_Pooling/secrets.json",
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


def test_a_link_that_leads_out_of_the_folder_is_left_out_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (tmp_path / "private.json").write_text("{}")
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").symlink_to(tmp_path / "private.json")
    (folder / "1_Pooling" / "config.json").symlink_to("../../private.json")
    (folder / "2_Dense").symlink_to(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (folder / "generation_config.json").symlink_to("config.json")
    assert folder_companions(folder) == ["config.json", "generation_config.json"]
    assert outward_links(folder) == [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "tokenizer.json",
    ]


def test_a_snapshot_of_the_cache_links_to_its_own_blobs_only(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--a" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for repo, name in (("models--org--a", "config.json"), ("models--org--b", "tokenizer.json")):
        blob = tmp_path / repo / "blobs" / name
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_text("{}")
        (snapshot / name).symlink_to(f"../../../{repo}/blobs/{name}")
    assert folder_companions(snapshot) == ["config.json"]
    assert outward_links(snapshot) == ["tokenizer.json"]
