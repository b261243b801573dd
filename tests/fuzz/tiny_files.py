"""The smallest models that have everything: two layers, a tokenizer and all companion files."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

HIDDEN, LAYERS = 4, 2
WORDS = ("a", "b", "c", "ab", "Ġ", "Ġa")
SPECIAL = ("<s>", "</s>")
ROWS = len(WORDS) + len(SPECIAL)

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": HIDDEN,
    "vocab_size": ROWS,
    "layer_types": ["full_attention", "sliding_attention"],
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "bos_token_id": ROWS - 2,
    "eos_token_id": [ROWS - 1],
    "tie_word_embeddings": False,
    "dtype": "float32",
}
GENERATION: dict[str, Any] = {
    "bos_token_id": ROWS - 2,
    "eos_token_id": [ROWS - 1],
    "pad_token_id": 0,
    "suppress_tokens": [1, 2],
    "forced_decoder_ids": [[1, 2]],
    "temperature": 0.6,
}
_CHAT = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"


def _added(number: int, content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, **flags, "special": True}


def tokenizer(kind: str, words: tuple[str, ...] = WORDS) -> dict[str, Any]:
    """Return the data of tokenizer.json.

    Args:
        kind: the model's type: ``BPE``, ``Unigram`` or ``WordPiece``.
        words: the vocabulary without special tokens.
    """
    ids = {word: number for number, word in enumerate(words)}
    merges = [list(word) for word in words if len(word) == 2]
    models: dict[str, dict[str, Any]] = {
        "BPE": {"vocab": ids, "merges": merges, "byte_fallback": False},
        "Unigram": {"vocab": [[word, -1.5] for word in words], "unk_id": 0},
        "WordPiece": {"vocab": ids, "unk_token": "a", "continuing_subword_prefix": "##"},
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": {"strategy": "BatchLongest", "pad_id": 0, "pad_token": "a"},
        "added_tokens": [_added(len(words) + n, text) for n, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [len(words)], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "ByteLevel"},
        "model": {"type": kind, **models[kind]},
    }


def tokenizer_files(kind: str, words: tuple[str, ...] = WORDS) -> dict[str, bytes]:
    """Return all files of a tokenizer."""
    numbers = {str(len(words) + n): text for n, text in enumerate(SPECIAL)}
    contents: dict[str, Any] = {
        "tokenizer.json": tokenizer(kind, words),
        "tokenizer_config.json": {
            "added_tokens_decoder": {n: _added(int(n), text) for n, text in numbers.items()},
            "bos_token": "<s>",
            "eos_token": {"content": "</s>", "lstrip": False},
            "chat_template": [{"name": "default", "template": _CHAT}],
            "extra_special_tokens": {"image_token": "<s>"},
            "model_max_length": 1e30,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "special_tokens_map.json": {"bos_token": "<s>", "additional_special_tokens": ["</s>"]},
        "added_tokens.json": {text: int(n) for n, text in numbers.items()},
        "chat_template.json": {"chat_template": _CHAT},
    }
    files = {name: json.dumps(content).encode() for name, content in contents.items()}
    return {**files, "chat_template.jinja": _CHAT.encode()}


def shapes(rows: int = ROWS) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a model."""
    square = (HIDDEN, HIDDEN)
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (rows, HIDDEN)}
    for layer in range(LAYERS):
        for part in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj"):
            found[f"model.layers.{layer}.{part}.weight"] = square
        found[f"model.layers.{layer}.input_layernorm.weight"] = (HIDDEN,)
    return {**found, "model.norm.weight": (HIDDEN,), "lm_head.weight": (rows, HIDDEN)}


def numbers(shape: tuple[int, ...], seed: object) -> array[float]:
    """Draw the float32 numbers of a tensor."""
    draw, count = Random(str(seed)), 1
    for size in shape:
        count *= size
    return array("f", [draw.gauss(0, 0.05) for _ in range(count)])


def safetensors(tensors: Mapping[str, tuple[int, ...]], seed: int) -> tuple[dict[str, Any], bytes]:
    """Return the header and the data of a file of float32 tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in tensors.items():
        start = len(data)
        data += numbers(shape, (seed, name)).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, len(data)]}
    return header, data


def joined(header: bytes, data: bytes) -> bytes:
    """Return the safetensors file of a header and data."""
    return len(header).to_bytes(8, "little") + header + data


def weights(tensors: Mapping[str, tuple[int, ...]], seed: int) -> bytes:
    """Return a safetensors file of float32 tensors."""
    header, data = safetensors(tensors, seed)
    return joined(json.dumps(header).encode(), data)


def model_files(seed: int, kind: str = "BPE", words: tuple[str, ...] = WORDS) -> dict[str, bytes]:
    """Return the files of a model whose weights are in one file."""
    rows = len(words) + len(SPECIAL)
    return {
        "config.json": json.dumps({**CONFIG, "vocab_size": rows}).encode(),
        "generation_config.json": json.dumps(GENERATION).encode(),
        "model.safetensors": weights(shapes(rows), seed),
        **tokenizer_files(kind, words),
    }


def sharded(files: Mapping[str, bytes], seed: int) -> dict[str, bytes]:
    """Return the files of a model with its weights in two files instead of one, and an index."""
    names = list(shapes().items())
    parts = {"model-1.safetensors": dict(names[:5]), "model-2.safetensors": dict(names[5:])}
    where = {name: file for file, tensors in parts.items() for name in tensors}
    index = {"metadata": {"total_size": 4 * sum(map(len, where))}, "weight_map": where}
    rest = {name: data for name, data in files.items() if name != "model.safetensors"}
    return {
        **rest,
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{file: weights(tensors, seed) for file, tensors in parts.items()},
    }


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a model's files into a folder."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
