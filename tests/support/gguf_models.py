"""Small models in GGUF, written by gguf-py under its names, as llama.cpp's converter does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from reading import evaluation

from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source

Arrays = dict[str, np.ndarray]

HIDDEN, HEADS, KEYS, LAYERS, WIDE, ROWS = 256, 4, 2, 2, 512, 96
EXPERTS = 3


@dataclass(frozen=True)
class Made:
    """A family of models: its names in GGUF and in transformers, and its special features."""

    architecture: str
    model_type: str
    head: int = HIDDEN // HEADS
    pairs: bool = False
    added: float = 0.0
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    bias: bool = False
    norms_of_heads: bool = False
    experts: str = ""
    shared: bool = False
    packed: bool = False
    tied: bool = False
    wide: int = WIDE
    wide_shared: int = WIDE
    more: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self, seed: int) -> Arrays:
        """Return random tensors under transformers' names."""
        draw = np.random.default_rng(seed)
        queries, keys = HEADS * self.head, KEYS * self.head
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (ROWS, HIDDEN),
            "model.norm.weight": (HIDDEN,),
        }
        if not self.tied:
            shapes["lm_head.weight"] = (ROWS, HIDDEN)
        for layer in range(LAYERS):
            own: dict[str, tuple[int, ...]] = {f"{name}.weight": (HIDDEN,) for name in self.norms}
            if self.packed:
                own["self_attn.qkv_proj.weight"] = (queries + 2 * keys, HIDDEN)
                own["mlp.gate_up_proj.weight"] = (2 * WIDE, HIDDEN)
                own["mlp.down_proj.weight"] = (HIDDEN, WIDE)
            else:
                rows = {"q": queries, "k": keys, "v": keys}
                own |= {f"self_attn.{n}_proj.weight": (r, HIDDEN) for n, r in rows.items()}
                if self.bias:
                    own |= {f"self_attn.{n}_proj.bias": (r,) for n, r in rows.items()}
            own["self_attn.o_proj.weight"] = (HIDDEN, queries)
            if self.norms_of_heads:
                own |= {f"self_attn.{n}_norm.weight": (self.head,) for n in "qk"}
            if self.experts:
                own |= self._mixture()
            elif not self.packed:
                own |= _mlp("mlp", ("gate_proj", "up_proj", "down_proj"))
            shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
        return {
            name: (0.05 * draw.standard_normal(shape)).astype(np.float32)
            for name, shape in shapes.items()
        }

    def _mixture(self) -> dict[str, tuple[int, ...]]:
        names = ("w1", "w3", "w2") if self.experts == "block_sparse_moe" else None
        own: dict[str, tuple[int, ...]] = {f"{self.experts}.gate.weight": (EXPERTS, HIDDEN)}
        for number in range(EXPERTS):
            at = f"{self.experts}.experts.{number}"
            own |= _mlp(at, names or ("gate_proj", "up_proj", "down_proj"), self.wide)
        if self.shared:
            names = ("gate_proj", "up_proj", "down_proj")
            own |= _mlp("mlp.shared_expert", names, self.wide_shared)
            own["mlp.shared_expert_gate.weight"] = (1, HIDDEN)
        return own


def _mlp(at: str, names: tuple[str, str, str], wide: int = WIDE) -> dict[str, tuple[int, ...]]:
    gate, up, down = (f"{at}.{name}.weight" for name in names)
    return {gate: (wide, HIDDEN), up: (wide, HIDDEN), down: (HIDDEN, wide)}


_FOUR_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_OF_EXPERTS = {"expert_count": EXPERTS, "expert_used_count": 2}
FAMILIES = {
    "llama": Made("llama", "llama", pairs=True),
    "mixtral": Made("llama", "mixtral", pairs=True, experts="block_sparse_moe", more=_OF_EXPERTS),
    "qwen2": Made("qwen2", "qwen2", bias=True),
    "qwen3": Made("qwen3", "qwen3", head=128, norms_of_heads=True),
    "phi3": Made("phi3", "phi3", packed=True, more={"attention.sliding_window": 64}),
    "gemma": Made("gemma", "gemma", added=1.0, tied=True, head=128),
    "gemma2": Made(
        "gemma2",
        "gemma2",
        added=1.0,
        tied=True,
        head=128,
        norms=_FOUR_NORMS,
        more={
            "attention.sliding_window": 32,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": Made(
        "gemma3",
        "gemma3_text",
        added=1.0,
        tied=True,
        head=128,
        norms=_FOUR_NORMS,
        norms_of_heads=True,
        more={"attention.sliding_window": 32},
    ),
    "qwen2moe": Made(
        "qwen2moe",
        "qwen2_moe",
        bias=True,
        experts="mlp",
        shared=True,
        wide=1408,
        wide_shared=5632,  # transformers takes these two for granted, whatever the file says
        more={
            **_OF_EXPERTS,
            "expert_feed_forward_length": 1408,
            "expert_shared_feed_forward_length": 5632,
        },
    ),
    "qwen3moe": Made(
        "qwen3moe",
        "qwen3_moe",
        norms_of_heads=True,
        experts="mlp",
        wide=768,
        more={**_OF_EXPERTS, "expert_feed_forward_length": 768},
    ),
}


def converted(made: Made, tensors: Arrays) -> Arrays:
    """Convert tensors to GGUF's names and order of rows, as llama.cpp's converter does."""
    architecture = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[made.architecture]
    names = gguf.get_tensor_name_map(architecture, LAYERS)
    found: Arrays = {}
    packed: dict[str, list[np.ndarray]] = {}
    for name, values in tensors.items():
        stem, _, kind = name.rpartition(".")
        if made.added and name.endswith("norm.weight"):
            values = values + np.float32(made.added)
        if made.pairs and stem.endswith(("q_proj", "k_proj")):
            heads = HEADS if stem.endswith("q_proj") else KEYS
            parts = values.reshape(heads, 2, values.shape[0] // heads // 2, -1)
            values = parts.swapaxes(1, 2).reshape(values.shape)
        if "shared_expert_gate" in name:
            values = values[0]
        if ".experts." in name:
            before, _, after = stem.partition(".experts.")
            stem = f"{before}.experts.{after.partition('.')[2]}"
            packed.setdefault(f"{names.get_name(stem)}.{kind}", []).append(values)
            continue
        found[f"{names.get_name(stem)}.{kind}"] = values
    return found | {name: np.stack(parts) for name, parts in packed.items()}


def write_gguf(
    path: Path, made: Made, tensors: Arrays, scheme: str, *, shards: int = 1, **values: Any
) -> Arrays:
    """Write tensors, matrices in a scheme and vectors in F32.

    Returns:
        The file's numbers, under GGUF's names.
    """
    kind = gguf.GGMLQuantizationType[scheme]
    count = len(converted(made, tensors))
    most = -(-count // shards) if shards > 1 else 0
    writer = gguf.GGUFWriter(path, made.architecture, split_max_tensors=most)
    usual: dict[str, Any] = {
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "context_length": 128,
        "feed_forward_length": WIDE,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEYS,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.key_length": made.head,
        "attention.value_length": made.head,
        "rope.dimension_count": made.head,
        "rope.freq_base": 500000.0,
        "vocab_size": ROWS,
        **made.more,
        **values,
    }
    for key, value in usual.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{made.architecture}.{key}", value)
    writer.add_uint32("tokenizer.ggml.bos_token_id", 1)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    writer.add_uint32("tokenizer.ggml.padding_token_id", 0)
    writer.add_array("tokenizer.ggml.tokens", [f"token {n}" for n in range(6000)])
    read: Arrays = {}
    for name, array in converted(made, tensors).items():
        if array.ndim == 1 or "gate_inp" in name:
            writer.add_tensor(name, array)
            read[name] = array
            continue
        raw = coded(array, kind)
        if scheme in ("F16", "F32"):
            writer.add_tensor(name, raw)
        else:
            writer.add_tensor(name, raw, raw_dtype=kind)
        read[name] = dequantize(raw, kind).astype(np.float32).reshape(array.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


def coded(array: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Quantise an array in a scheme, or draw its codes if gguf-py cannot quantise it."""
    try:
        return quantize(array, kind)
    except NotImplementedError:
        return drawn(array, kind)


def drawn(array: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Draw random codes with small scales."""
    elements, nbytes = gguf.GGML_QUANT_SIZES[kind]
    draw = np.random.default_rng(int(abs(array.ravel()[0]) * 1e9) % 2**32)
    shape = (*array.shape[:-1], array.shape[-1] // elements, nbytes)
    blocks = draw.integers(0, 256, shape, dtype=np.uint8)
    for place in _SCALES[kind.name]:
        scale = draw.uniform(0.0005, 0.002, shape[:-1]).astype(np.float16)
        blocks[..., place : place + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(*array.shape[:-1], -1)


_SCALES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}

SCHEMES: tuple[str, ...] = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
)


def numbers_of(source: Source) -> Arrays:
    """Return the numbers of a model's tensors as a merge reads them, in float32."""
    means = evaluation(SourceReader([source]), 1 << 30)
    found = {}
    for name, tensor in source.tensors.items():
        exact = tensor.exact
        found[name] = exact.floats(means, 0, exact.numel).reshape(exact.shape)
    return found
