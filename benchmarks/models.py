"""Llama-shaped bf16 models to merge: a random base and fine-tunes of it.

``python -m benchmarks.models --size 0.85b --tunes 2`` prints the folders, base first. What is
already in the cache folder is not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASE_STD = 0.02
TUNE_STD = 0.001
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Size:
    """The shape of one llama; tensors are bf16, two bytes a parameter.

    Attributes:
        tied: whether the embeddings serve as lm_head too, which then is no tensor.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    shards: int
    vocab: int = 32000
    tied: bool = False

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor's name and shape, in the order in which they are written."""
        kv = self.hidden // self.heads * self.kv_heads
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm": (self.hidden,),
            "self_attn.q_proj": (self.hidden, self.hidden),
            "self_attn.k_proj": (kv, self.hidden),
            "self_attn.v_proj": (kv, self.hidden),
            "self_attn.o_proj": (self.hidden, self.hidden),
            "post_attention_layernorm": (self.hidden,),
            "mlp.gate_proj": (self.intermediate, self.hidden),
            "mlp.up_proj": (self.intermediate, self.hidden),
            "mlp.down_proj": (self.hidden, self.intermediate),
        }
        vocabulary = (self.vocab, self.hidden)
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": vocabulary}
        for number in range(self.layers):
            for name, shape in layer.items():
                shapes[f"model.layers.{number}.{name}.weight"] = shape
        shapes["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            shapes["lm_head.weight"] = vocabulary
        return shapes

    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return 2 * sum(math.prod(shape) for shape in self.tensors().values())

    def config(self) -> dict[str, Any]:
        """A config.json that transformers opens."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "vocab_size": self.vocab,
            "max_position_embeddings": 2048,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": self.tied,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "bfloat16",
        }


SIZES = {
    # 13.5 GB each: two are larger than the page cache of most machines.
    "7b": Size(hidden=4096, intermediate=11008, layers=32, heads=32, kv_heads=32, shards=3),
    # As 0.85b, but for one tensor of 1 GB.
    "1.3b": Size(2048, 3808, 22, heads=32, kv_heads=4, shards=3, vocab=262144, tied=True),
    "0.85b": Size(hidden=2048, intermediate=3808, layers=22, heads=32, kv_heads=4, shards=3),
    # With one tensor of 1.6 GB.
    "1.5b": Size(2048, 3808, 22, heads=32, kv_heads=4, shards=3, vocab=393216, tied=True),
    "0.2b": Size(hidden=1024, intermediate=2816, layers=12, heads=16, kv_heads=4, shards=2),
    "tiny": Size(hidden=64, intermediate=128, layers=3, heads=4, kv_heads=2, shards=2, vocab=256),
}


def default_folder() -> Path:
    """``$RESUMERGE_BENCH_DIR``, or a folder that outlives the process in the temporary folder."""
    named = os.environ.get("RESUMERGE_BENCH_DIR")
    return Path(named) if named else Path(tempfile.gettempdir()) / "resumerge-bench"


def make_models(size: str, tunes: int, folder: Path) -> list[Path]:
    """The base and ``tunes`` fine-tunes of it, made where they are not there yet.

    Args:
        size: a key of ``SIZES``.
        tunes: how many fine-tunes (base + normal noise of ``TUNE_STD``).
        folder: the cache folder; models lie in ``folder/size/base``, ``.../tune1`` and so on.

    Returns:
        The model folders, base first.
    """
    shape = SIZES[size]
    paths = [folder / size / "base"]
    paths += [folder / size / f"tune{number}" for number in range(1, tunes + 1)]
    for number, path in enumerate(paths):
        if not (path / INDEX).exists():
            _write_model(shape, number, path)
    return paths


def _write_model(size: Size, number: int, path: Path) -> None:
    """Write one model beside its place and rename it, so that a half-made one is never used."""
    from safetensors.torch import save_file

    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shards = _shards(size)
    weight_map = {}
    for at, names in enumerate(shards, start=1):
        file = f"model-{at:05d}-of-{len(shards):05d}.safetensors"
        tensors = {name: _tensor(size, name, number) for name in names}
        save_file(tensors, partial / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(names, file))
    (partial / "config.json").write_text(json.dumps(size.config(), indent=2))
    index = {"metadata": {"total_size": size.nbytes()}, "weight_map": weight_map}
    (partial / INDEX).write_text(json.dumps(index, indent=2))
    partial.rename(path)


def _shards(size: Size) -> list[list[str]]:
    """Tensor names, cut in order into shards of about equal bytes."""
    limit = size.nbytes() / size.shards
    shards: list[list[str]] = [[]]
    filled = 0
    for name, shape in size.tensors().items():
        if filled >= limit * len(shards):
            shards.append([])
        shards[-1].append(name)
        filled += 2 * math.prod(shape)
    return shards


def _tensor(size: Size, name: str, number: int) -> Any:
    """One tensor of the base (0) or of a fine-tune (its number); the same at every call."""
    import torch

    shapes = size.tensors()
    at = list(shapes).index(name)

    def noise(model: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1_000_003 * model + at)
        return torch.randn(shapes[name], generator=generator)

    value = noise(0).mul_(BASE_STD)
    if name.endswith("norm.weight"):
        value += 1
    if number:
        value = value.bfloat16().float().add_(noise(number), alpha=TUNE_STD)
    return value.bfloat16()


def safetensors_files(folder: Path) -> Iterator[Path]:
    """The shards of a model folder, in order."""
    return iter(sorted(folder.glob("*.safetensors")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="0.85b")
    parser.add_argument("--tunes", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None, help="default: $RESUMERGE_BENCH_DIR")
    options = parser.parse_args()
    for path in make_models(options.size, options.tunes, options.folder or default_folder()):
        print(path)


if __name__ == "__main__":
    main()
