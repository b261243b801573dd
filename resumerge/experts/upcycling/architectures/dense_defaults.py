"""The defaults of config.json for each model type of a dense model.

The output's model type has other defaults, so the dense defaults become explicit in its
config.json. The values are those of transformers' config classes, equal in versions 4 and 5.
"""

from __future__ import annotations

from typing import Any

from resumerge.config_json import model_type
from resumerge.experts.upcycling.architectures.output_architecture import Config

_ALL: dict[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_cache": True,
}
_BY_TYPE: dict[str, dict[str, Any]] = {
    "llama": {"max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2},
    "mistral": {
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "qwen2": {"max_position_embeddings": 32768, "num_key_value_heads": 32},
    "qwen3": {"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128},
}
_THETA = 10000.0


def complete(config: Config) -> dict[str, Any]:
    """Return a dense model's config.json with the defaults of its model type."""
    defaults = {**_ALL, **_BY_TYPE.get(model_type(config), {})}
    head_count = config.get("num_attention_heads")
    defaults.setdefault("num_key_value_heads", head_count)
    if "rope_parameters" not in config:
        defaults["rope_theta"] = _THETA
    completed_config = {**defaults, **config}
    if completed_config["num_key_value_heads"] is None:  # any config may contain null here
        completed_config["num_key_value_heads"] = head_count
    return completed_config
