"""Models on disk for tests, written without a model library: names, shapes, numbers, config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import TensorSpec, serialize_file

from resumerge.kernels.elementwise import round_to
from resumerge.native import CODES, KINDS, Vector

if TYPE_CHECKING:
    from torch import Tensor

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 48,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "dtype": "float32",
}
TWO_LAYERS: dict[str, Any] = {**LLAMA, "num_hidden_layers": 2, "vocab_size": 160}
"""21 tensors; the embeddings are five blocks of 512 elements long."""


def llama_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor; with tied embeddings there is no lm_head."""
    hidden, wide, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries = config["num_attention_heads"] * head
    keys = config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden)
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (queries, hidden),
            f"{at}.self_attn.k_proj.weight": (keys, hidden),
            f"{at}.self_attn.v_proj.weight": (keys, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, queries),
            f"{at}.mlp.gate_proj.weight": (wide, hidden),
            f"{at}.mlp.up_proj.weight": (wide, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, wide),
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.post_attention_layernorm.weight": (hidden,),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def random_tensors(
    shapes: Mapping[str, tuple[int, ...]], seed: int, dtype: str = "float32"
) -> dict[str, Tensor]:
    """Draw normally distributed tensors, the same ones for the same seed."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    torch_dtype = getattr(torch, dtype)
    return {
        name: torch.empty(shape, dtype=torch_dtype).normal_(0.0, 0.05, generator=generator)
        for name, shape in shapes.items()
    }


def finetuned(tensors: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return the tensors after a change of about a tenth of their size."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + torch.empty_like(tensor).normal_(0.0, 0.005, generator=generator)
        for name, tensor in tensors.items()
    }


def write_model(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] = LLAMA
) -> Path:
    """Write a model folder: one safetensors file and config.json."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_family(folder: Path, config: Mapping[str, Any] = LLAMA, dtype: str = "float32") -> Path:
    """Write `base` and two fine-tunes of it, `math` and `code`, into a folder, and return that.

    They are made without torch, so that tests which need no torch run without it.
    """
    draw, shapes = np.random.default_rng(0), llama_shapes(config)
    base = {name: 0.05 * draw.standard_normal(shape) for name, shape in shapes.items()}
    for seed, name in enumerate(("base", "math", "code")):
        change = np.random.default_rng(seed)
        tuned = {
            key: values + (0.005 * change.standard_normal(values.shape) if seed else 0.0)
            for key, values in base.items()
        }
        _write(folder / name, {key: _rounded(v, dtype) for key, v in tuned.items()}, dtype, config)
    return folder


def _rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return numbers in a type of torch's name, or their bits if NumPy lacks the type."""
    bits = np.empty(values.shape, KINDS[CODES[dtype]])
    round_to(Vector(values.astype(np.float32).ravel()), Vector(bits.reshape(-1), CODES[dtype]))
    return bits


def _write(
    folder: Path, arrays: Mapping[str, np.ndarray], dtype: str, config: Mapping[str, Any]
) -> None:
    """Write a model folder from arrays that contain the bits of a type."""
    specs = {
        name: TensorSpec(
            dtype=dtype,
            shape=list(array.shape),
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    serialize_file(specs, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
