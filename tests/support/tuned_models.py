"""Small models of transformers, and fine-tunes of them with a known change of a low rank."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

RANK = 4
_SMALL: dict[str, Any] = {
    **{"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "max_position_embeddings": 64},
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_TABLES = ("emb", "wte", "wpe", "shared", "lm_head")


def _llama(**more: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_GROUPED, **more))


def _gemma3() -> Any:
    text = transformers.Gemma3TextConfig(**_GROUPED, head_dim=16, sliding_window=16)
    vision = transformers.SiglipVisionConfig(
        **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "image_size": 32, "patch_size": 8},
    )
    config = transformers.Gemma3Config(
        text_config=text.to_dict(),
        vision_config=vision.to_dict(),
        mm_tokens_per_image=4,
        image_token_index=95,
    )
    return transformers.Gemma3ForConditionalGeneration(config)


def _whisper() -> Any:
    config = transformers.WhisperConfig(
        **{"vocab_size": 96, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2},
        **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128},
        **{"decoder_ffn_dim": 128, "num_mel_bins": 8, "max_source_positions": 32},
        **{"max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        **{"decoder_start_token_id": 1, "begin_suppress_tokens": None, "suppress_tokens": None},
    )
    return transformers.WhisperForConditionalGeneration(config)


MODELS: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "llama_tied": lambda: _llama(tie_word_embeddings=True),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_GROUPED)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**_GROUPED, head_dim=16)
    ),
    "gemma3": _gemma3,
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=64)
    ),
    "phi": lambda: transformers.PhiForCausalLM(transformers.PhiConfig(**_SMALL)),
    "mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**_GROUPED, num_local_experts=4)
    ),
    "qwen2_moe": lambda: transformers.Qwen2MoeForCausalLM(
        transformers.Qwen2MoeConfig(**_GROUPED, **_EXPERTS, shared_expert_intermediate_size=40)
    ),
    "qwen3_moe": lambda: transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(**_GROUPED, **_EXPERTS, head_dim=16)
    ),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**_SMALL)),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            **{"vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2},
            **{"num_heads": 4, "decoder_start_token_id": 0},
        )
    ),
    "whisper": _whisper,
    "resnet": lambda: transformers.ResNetForImageClassification(
        transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], num_labels=4
        )
    ),
    "convnext": lambda: transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(
            hidden_sizes=[16, 32, 32, 32], depths=[1, 1, 1, 1], num_labels=4, image_size=32
        )
    ),
}


def write_pair(
    folder: Path,
    kind: str,
    *,
    tables: bool = False,
    change: Callable[[str, Tensor], Tensor | None] | None = None,
) -> Any:
    """Write `base` and `tuned` into a folder, and return the class of the models.

    Args:
        folder: the folder.
        kind: one of `MODELS`.
        tables: whether embeddings and heads change as well.
        change: a function that returns the change of a parameter, or None for no change; by
            default a matrix changes by a low rank, and a vector in all elements.
    """
    torch.manual_seed(0)
    model = MODELS[kind]()
    model.save_pretrained(folder / "base")
    drawn = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not tables and any(word in name for word in _TABLES) and parameter.ndim == 2:
                continue
            made = change(name, parameter) if change else _low_rank(parameter, drawn)
            if made is not None:
                parameter += made
    model.save_pretrained(folder / "tuned")
    return type(model)


def _low_rank(parameter: Tensor, drawn: torch.Generator) -> Tensor:
    if parameter.ndim < 2:
        return 0.02 * torch.randn(parameter.shape, generator=drawn)
    if parameter.ndim == 3 and parameter.shape[1] > 8:
        return torch.stack([_low_rank(matrix, drawn) for matrix in parameter])
    rows, columns = parameter.shape[0], parameter[0].numel()
    left = torch.randn(rows, min(RANK, rows, columns), generator=drawn)
    right = torch.randn(left.shape[1], columns, generator=drawn)
    return (0.02 * left @ right).reshape(parameter.shape)


def inputs_of(kind: str) -> dict[str, Tensor]:
    """Return inputs for a model of this kind."""
    ids = torch.arange(1, 17)[None]
    if kind in ("resnet", "convnext"):
        return {"pixel_values": torch.randn(1, 3, 32, 32)}
    if kind == "whisper":
        return {"input_features": torch.randn(1, 8, 64), "decoder_input_ids": ids}
    return {"input_ids": ids, **({"decoder_input_ids": ids} if kind == "t5" else {})}


def write_packed(folder: Path, cls: Any) -> None:
    """Write a mixture's files again, with its experts packed as in transformers 5."""
    model = cls.from_pretrained(folder, dtype=torch.float32)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor], name: str) -> float:
    """Return the length of the difference of two tensors of this name."""
    return float((one[name].double() - other[name].double()).norm())


def config_of(adapter: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((adapter / "adapter_config.json").read_text())
    return found
