"""Adapters made with peft on tiny models, with every matrix filled with random numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

LLAMA = LlamaConfig(
    hidden_size=16,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    vocab_size=48,
    tie_word_embeddings=False,
)
GPT2 = GPT2Config(
    n_embd=16, n_layer=2, n_head=2, vocab_size=48, n_positions=32, bos_token_id=0, eos_token_id=0
)
MOE = Qwen3MoeConfig(
    hidden_size=16,
    moe_intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    vocab_size=48,
    num_experts=4,
    num_experts_per_tok=2,
)
CLASSES = {"llama": LlamaForCausalLM, "gpt2": GPT2LMHeadModel, "moe": Qwen3MoeForCausalLM}
CONFIGS = {"llama": LLAMA, "gpt2": GPT2, "moe": MOE}


def write_base(folder: Path, kind: str, dtype: str = "float32", **changed: Any) -> Path:
    """Write a model of random weights, as transformers saves it."""
    torch.manual_seed(0)
    config = type(CONFIGS[kind])(**{**CONFIGS[kind].to_dict(), **changed})
    model = CLASSES[kind](config)
    for parameter in model.parameters():  # norms and biases too
        parameter.data += torch.randn_like(parameter) * 0.1
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


def write_adapter(
    folder: Path, base: Path, kind: str, dtype: str = "auto", seed: int = 1, **options: Any
) -> Path:
    """Write an adapter for a base, as peft saves it, with its own tensors in a dtype."""
    torch.manual_seed(seed)
    model = CLASSES[kind].from_pretrained(base, dtype=dtype)
    if rows := options.pop("rows", None):
        model.resize_token_embeddings(rows)
    safe = options.pop("safe_serialization", True)
    adapted = get_peft_model(model, LoraConfig(**{"r": 4, "lora_alpha": 8, **options}))
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data += torch.randn_like(parameter) * 0.1
    adapted.save_pretrained(folder, safe_serialization=safe)
    return folder


def merged_by_peft(
    base: Path, adapter: Path, kind: str, dtype: str | None = None, rows: int | None = None
) -> dict[str, Tensor]:
    """Return the tensors of a model into which peft has merged an adapter.

    Args:
        dtype: the dtype in which peft computes; by default the base's.
    """
    model = CLASSES[kind].from_pretrained(
        base, **({"dtype": getattr(torch, dtype)} if dtype else {})
    )
    if rows:
        model.resize_token_embeddings(rows)
    merged = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    return dict(merged.state_dict())
