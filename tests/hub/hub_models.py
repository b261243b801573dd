"""Small models as the files of a repo."""

from __future__ import annotations

import json

from resumerge.recipe.types import ModelRef

CONFIG = json.dumps({"model_type": "llama", "num_hidden_layers": 2}).encode()


def safetensors(names: list[str], numel: int = 256, fill: int = 0) -> bytes:
    """Return a safetensors file of one-dimensional BF16 tensors, every byte of them `fill`."""
    size = 2 * numel
    header = json.dumps(
        {
            name: {"dtype": "BF16", "shape": [numel], "data_offsets": [i * size, (i + 1) * size]}
            for i, name in enumerate(names)
        }
    ).encode()
    return len(header).to_bytes(8, "little") + header + bytes([fill]) * (size * len(names))


def single(fill: int = 0, numel: int = 256) -> dict[str, bytes]:
    """Return the files of a model with one weight file and a tokenizer."""
    names = [f"model.layers.{i}.mlp.down_proj.weight" for i in range(2)]
    return {
        "config.json": CONFIG,
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"a": 1}',
        "README.md": b"# card",
        "model.safetensors": safetensors(names, numel, fill),
    }


def shard(number: int, count: int) -> str:
    return f"model-{number:05}-of-{count:05}.safetensors"


def sharded(count: int = 3, numel: int = 256) -> dict[str, bytes]:
    """Return the files of a model of `count` shards, one layer in each."""
    names = {f"model.layers.{i}.weight": shard(i + 1, count) for i in range(count)}
    index = json.dumps({"metadata": {}, "weight_map": names}).encode()
    files = {"config.json": CONFIG, "model.safetensors.index.json": index}
    return files | {
        file: safetensors([name], numel, fill=i) for i, (name, file) in enumerate(names.items())
    }


def ref(text: str) -> ModelRef:
    """Return the reference that a recipe makes of ``org/name`` or ``org/name@revision``."""
    name, _, revision = text.partition("@")
    return ModelRef(text, name, revision or None)
