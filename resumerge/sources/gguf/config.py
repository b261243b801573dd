"""Makes the config.json of a model in GGUF from its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.sources.gguf.families import Family
from resumerge.sources.gguf.metadata import Metadata
from resumerge.sources.gguf.rope import Read, scaled_positions
from resumerge.tensors import Tensor

USUAL_THETA = 10000.0

LARGE_GEMMAS = {("gemma2", 46), ("gemma3_text", 62)}
"""The models of 27 B, by model type and number of layers.

Their ``query_pre_attn_scalar`` is the hidden size divided by the number of heads.
"""


def config_of(
    metadata: Metadata, family: Family, raw: Mapping[str, Tensor], dtype: str, read: Read
) -> dict[str, Any]:
    """Return the config.json that transformers needs.

    Args:
        metadata: the metadata under llama.cpp's keys, from the model's first file.
        family: the model's architecture.
        raw: the tensors by their names in the file, with the shapes of decoded tensors.
        dtype: torch's name of the weights' type.
        read: returns the bytes of a small tensor.

    Raises:
        InputError: a value is missing or invalid.
    """
    hidden_size = metadata.needed("embedding_length")
    head_count = metadata.needed("attention.head_count")
    layer_count = metadata.needed("block_count")
    head_width = metadata.size("attention.key_length") or hidden_size // head_count
    rotated_width = metadata.size("rope.dimension_count") or head_width
    theta = metadata.number("rope.freq_base") or USUAL_THETA
    config: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": raw["token_embd.weight"].shape[0],
        "hidden_size": hidden_size,
        "intermediate_size": metadata.size("feed_forward_length"),
        "num_hidden_layers": layer_count,
        "num_attention_heads": head_count,
        "num_key_value_heads": metadata.size("attention.head_count_kv") or head_count,
        "head_dim": head_width,
        "max_position_embeddings": metadata.needed("context_length"),
        "rms_norm_eps": metadata.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "tie_word_embeddings": "output.weight" not in raw,
        "dtype": dtype,
        **family.fixed,
        **scaled_positions(metadata, raw, read, rotated_width, theta),
    }
    for key, name in family.numbers.items():
        if metadata.of_model(name) == 0:
            continue  # a window of 0 means no window
        is_size = type(metadata.of_model(name)) is int
        config[key] = metadata.size(name) if is_size else metadata.number(name)
    for key, token in (
        ("bos_token_id", "bos_token_id"),
        ("eos_token_id", "eos_token_id"),
        ("pad_token_id", "padding_token_id"),
    ):
        config[key] = metadata.token(token)
    if family.model_type in ("gemma2", "gemma3_text"):
        is_large = (family.model_type, layer_count) in LARGE_GEMMAS
        config["query_pre_attn_scalar"] = hidden_size // head_count if is_large else head_width
    if family.model_type == "phi3" and rotated_width != head_width:
        config["partial_rotary_factor"] = rotated_width / head_width
    if family.model_type in ("llama", "mixtral", "qwen3", "qwen3_moe"):
        config["attention_bias"] = "blk.0.attn_q.bias" in raw
    if family.model_type == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in raw
    return {key: value for key, value in config.items() if value is not None}
