"""Tiny dense models with a tokenizer, as transformers saves them, and recipes of mixtures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 260,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "mistral": MistralConfig(**SIZES),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=8),
}
EXPERTS = """
experts:
  - source_model: ./a
    positive_prompts: [a number and a sum, an odd one]
    negative_prompts: [a song]
  - source_model: ./b
    positive_prompts: [def main]
    residual_scale: 0.5
  - source_model: ./c
    positive_prompts: [Once upon a time]
"""
SHARED = "shared_experts:\n  - source_model: ./a\n"
PROMPTED = f"{SHARED}    positive_prompts: [it]\n"


def write_dense(folder: Path, config: Any, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write `base`, `a`, `b` and `c`: models of one config, with biases that are not zero."""
    for seed, name in enumerate(("base", "a", "b", "c")):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).to(dtype)
        for parameter, tensor in model.named_parameters():
            if parameter.endswith("bias"):
                tensor.data.normal_()
        model.save_pretrained(folder / name)
        _tokenizer().save_pretrained(folder / name)
    return folder


def mixture(gate_mode: str, architecture: str, further: str = "") -> str:
    """Return a recipe of a mixture, which mergekit-moe also accepts."""
    return (
        f"base_model: ./base\ngate_mode: {gate_mode}\narchitecture: {architecture}\n"
        f"{further}{EXPERTS}"
    )


def _tokenizer() -> PreTrainedTokenizerFast:
    """Make a byte-level BPE without merges, which transformers reads in the same way for all."""
    special = ["<unk>", "<s>", "</s>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
