"""Models in the shape of DeepSeek-V3 (671 B, float8 in blocks of 128 x 128), as sparse files.

``python -m benchmarks.giant FOLDER`` writes config.json, the index and 163 files with headers like
those of the real model: 91,991 tensors, 689 GB that take a few megabytes of the disk, since all
numbers are zero. ``--layers 4 --experts 16 --filled SEED`` makes a smaller one with random numbers,
each matrix as wide as in the large one. Source of the shapes: config.json and inference/model.py of
https://huggingface.co/deepseek-ai/DeepSeek-V3.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from benchmarks.models import INDEX

WIDTHS = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
HIDDEN, DENSE, EXPERT, VOCABULARY = 7168, 18432, 2048, 129280
HEADS, NOPE, ROPE, VALUES, Q_RANK, KV_RANK = 128, 128, 64, 128, 1536, 512
FILES = 163
ONCE = 1 << 22


@dataclass(frozen=True)
class Shape:
    """How much of DeepSeek-V3 a model has.

    Attributes:
        layers: decoder layers, the first of which (at most 3) are dense.
        experts: routed experts of each other layer.
        predicts: whether the layer that predicts one more token is there.
    """

    layers: int = 61
    experts: int = 256
    predicts: bool = True

    @property
    def dense(self) -> int:
        """The number of dense layers."""
        return min(3, self.layers)

    def tensors(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Yield (name, dtype, shape) of each tensor, in the order of the files."""
        yield "model.embed_tokens.weight", "BF16", (VOCABULARY, HIDDEN)
        for number in range(self.layers):
            yield from self._layer(f"model.layers.{number}", number < self.dense)
        yield "model.norm.weight", "BF16", (HIDDEN,)
        yield "lm_head.weight", "BF16", (VOCABULARY, HIDDEN)
        if self.predicts:
            at = f"model.layers.{self.layers}"
            yield f"{at}.embed_tokens.weight", "BF16", (VOCABULARY, HIDDEN)
            yield f"{at}.enorm.weight", "BF16", (HIDDEN,)
            yield f"{at}.hnorm.weight", "BF16", (HIDDEN,)
            yield f"{at}.eh_proj.weight", "BF16", (HIDDEN, 2 * HIDDEN)
            yield from self._layer(at, False)
            yield f"{at}.shared_head.norm.weight", "BF16", (HIDDEN,)
            yield f"{at}.shared_head.head.weight", "BF16", (VOCABULARY, HIDDEN)

    def _layer(self, at: str, is_dense: bool) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        attention = f"{at}.self_attn"
        yield f"{at}.input_layernorm.weight", "BF16", (HIDDEN,)
        yield from _float8(f"{attention}.q_a_proj", Q_RANK, HIDDEN)
        yield f"{attention}.q_a_layernorm.weight", "BF16", (Q_RANK,)
        yield from _float8(f"{attention}.q_b_proj", HEADS * (NOPE + ROPE), Q_RANK)
        yield from _float8(f"{attention}.kv_a_proj_with_mqa", KV_RANK + ROPE, HIDDEN)
        yield f"{attention}.kv_a_layernorm.weight", "BF16", (KV_RANK,)
        yield from _float8(f"{attention}.kv_b_proj", HEADS * (NOPE + VALUES), KV_RANK)
        yield from _float8(f"{attention}.o_proj", HIDDEN, HEADS * VALUES)
        yield f"{at}.post_attention_layernorm.weight", "BF16", (HIDDEN,)
        if is_dense:
            yield from _mlp(f"{at}.mlp", DENSE)
            return
        yield f"{at}.mlp.gate.weight", "BF16", (self.experts, HIDDEN)
        yield f"{at}.mlp.gate.e_score_correction_bias", "F32", (self.experts,)
        for expert in range(self.experts):
            yield from _mlp(f"{at}.mlp.experts.{expert}", EXPERT)
        yield from _mlp(f"{at}.mlp.shared_experts", EXPERT)

    def config(self) -> dict[str, Any]:
        """Return a config.json that transformers opens."""
        groups = 8 if self.experts % 8 == 0 else 1
        return {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "hidden_size": HIDDEN,
            "intermediate_size": DENSE,
            "moe_intermediate_size": EXPERT,
            "num_hidden_layers": self.layers,
            "num_nextn_predict_layers": int(self.predicts),
            "first_k_dense_replace": self.dense,
            "moe_layer_freq": 1,
            "n_routed_experts": self.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": min(8, self.experts),
            "n_group": groups,
            "topk_group": min(4, groups),
            "topk_method": "noaux_tc",
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "scoring_func": "sigmoid",
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "q_lora_rank": Q_RANK,
            "kv_lora_rank": KV_RANK,
            "qk_nope_head_dim": NOPE,
            "qk_rope_head_dim": ROPE,
            "v_head_dim": VALUES,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 163840,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000,
            "tie_word_embeddings": False,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "fp8",
                "activation_scheme": "dynamic",
                "fmt": "e4m3",
                "weight_block_size": [128, 128],
            },
        }


def _float8(module: str, rows: int, columns: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    yield f"{module}.weight", "F8_E4M3", (rows, columns)
    yield f"{module}.weight_scale_inv", "F32", (-(-rows // 128), -(-columns // 128))


def _mlp(at: str, width: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    yield from _float8(f"{at}.gate_proj", width, HIDDEN)
    yield from _float8(f"{at}.up_proj", width, HIDDEN)
    yield from _float8(f"{at}.down_proj", HIDDEN, width)


def write(shape: Shape, folder: Path, filled: int | None = None) -> int:
    """Write a model, and return the bytes of its tensors.

    Args:
        shape: what it has.
        folder: its folder, which must not exist.
        filled: the seed of random numbers; None for zeros that take no space.
    """
    folder.mkdir(parents=True)
    sizes = {n: WIDTHS[dtype] * math.prod(dims) for n, dtype, dims in shape.tensors()}
    total = sum(sizes.values())
    files: list[dict[str, dict[str, Any]]] = []
    used = at = 0
    for name, dtype, dims in shape.tensors():
        if used >= total * len(files) / FILES:
            files.append({})
            at = 0
        place = [at, at + sizes[name]]
        files[-1][name] = {"dtype": dtype, "shape": list(dims), "data_offsets": place}
        at, used = place[1], used + sizes[name]
    weight_map = {}
    for number, tensors in enumerate(files, start=1):
        file = f"model-{number:05d}-of-{len(files):06d}.safetensors"
        weight_map.update(dict.fromkeys(tensors, file))
        text = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
        text += b" " * (-len(text) % 8)
        with (folder / file).open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + max(t["data_offsets"][1] for t in tensors.values()))
            if filled is not None:
                random = np.random.default_rng([filled, number])
                for tensor in tensors.values():
                    _fill(out, random, tensor["dtype"], math.prod(tensor["shape"]))
    (folder / "config.json").write_text(json.dumps(shape.config(), indent=2))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2))
    return total


def _fill(out: BinaryIO, random: np.random.Generator, dtype: str, count: int) -> None:
    """Write random numbers: any code of float8 but NaN, scales near 1e-4, weights near 0.02."""
    for start in range(0, count, ONCE):
        some = min(ONCE, count - start)
        if dtype == "F8_E4M3":
            codes = random.integers(0, 127, some, np.uint8) | random.integers(
                0, 2, some, np.uint8
            ) << np.uint8(7)
            out.write(codes.tobytes())
            continue
        numbers = random.standard_normal(some, np.float32) * np.float32(0.02)
        if dtype == "F32":
            out.write((np.abs(numbers) * np.float32(0.005) + np.float32(1e-5)).tobytes())
        else:
            out.write((numbers.view(np.uint32) >> np.uint32(16)).astype(np.uint16).tobytes())


def main() -> None:
    """Write one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--experts", type=int, default=Shape.experts)
    parser.add_argument("--filled", type=int, metavar="SEED")
    options = parser.parse_args()
    shape = Shape(options.layers, options.experts, options.layers == Shape.layers)
    total = write(shape, options.folder, options.filled)
    print(f"{options.folder}: {len(list(shape.tensors()))} tensors, {total / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
