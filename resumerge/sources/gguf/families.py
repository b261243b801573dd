"""The supported architectures of GGUF, with the names of tensors in GGUF and in transformers.

In each mapping, the keys are the names of llama.cpp's gguf-py (constants.py), and the values are
the names in published checkpoints of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_NORMS_OF_HEADS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_MLP = {
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NORM = {"ffn_norm": "post_attention_layernorm"}
_NORMS_OF_GEMMA = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
_EXPERTS_OF_MIXTRAL = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
}
_SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
SHARED_GATE = "ffn_gate_inp_shexp"
"""The tensor that is a vector in GGUF and a matrix of one row in transformers."""


@dataclass(frozen=True)
class Family:
    """An architecture.

    Args:
        model_type: the type of its models in transformers' config.json.
        architecture: the class that transformers loads its models with.
        layer: transformers' names of a layer's modules, by GGUF's names; ``{}`` stands for an
            expert's number.
        numbers: the metadata's key, without the architecture before it, for each key of config.json
            that this architecture has in addition to the usual keys.
        fixed: the values of config.json that are the same for all models.
        pairs: whether the rows of queries and keys that are rotated together are adjacent in GGUF.
        added: the number that was added to the weights of norms in GGUF.
        theta: the base of the frequencies of positions if config.json states none.
    """

    model_type: str
    architecture: str
    layer: Mapping[str, str]
    numbers: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    pairs: bool = False
    added: float = 0.0
    theta: float = 10000.0

    @property
    def top(self) -> Mapping[str, str]:
        """The names of the modules outside of layers in transformers, by GGUF's names."""
        return _TOP


_MIXTURE = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}

FAMILIES = {
    "llama": Family("llama", "LlamaForCausalLM", _ATTENTION | _MLP | _NORM, pairs=True),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM", _ATTENTION | _MLP | _NORM),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", _ATTENTION | _NORMS_OF_HEADS | _MLP | _NORM),
    "phi3": Family(
        "phi3",
        "Phi3ForCausalLM",
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
            **_NORM,
        },
        {"sliding_window": "attention.sliding_window"},
    ),
    "gemma": Family("gemma", "GemmaForCausalLM", _ATTENTION | _MLP | _NORM, added=1.0),
    "gemma2": Family(
        "gemma2",
        "Gemma2ForCausalLM",
        _ATTENTION | _MLP | _NORMS_OF_GEMMA,
        {
            "sliding_window": "attention.sliding_window",
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        added=1.0,
    ),
    "gemma3": Family(
        "gemma3_text",
        "Gemma3ForCausalLM",
        _ATTENTION | _NORMS_OF_HEADS | _MLP | _NORMS_OF_GEMMA,
        {
            "sliding_window": "attention.sliding_window",
            "rope_local_base_freq": "rope.freq_base_swa",
        },
        added=1.0,
        theta=1e6,
    ),
    "qwen2moe": Family(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        _ATTENTION | _EXPERTS | _SHARED_EXPERT | _NORM,
        {**_MIXTURE, "shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
    ),
    "qwen3moe": Family(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        _ATTENTION | _NORMS_OF_HEADS | _EXPERTS | _NORM,
        _MIXTURE,
        {"norm_topk_prob": True},
    ),
}
"""The families by GGUF's names of architectures."""

MIXTRAL = Family(
    "mixtral",
    "MixtralForCausalLM",
    _ATTENTION | _EXPERTS_OF_MIXTRAL | _NORM,
    {"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"},
    pairs=True,
    theta=1e6,
)
"""The family of models with GGUF's architecture ``llama`` and with experts."""

WRITTEN: Mapping[str, tuple[str, Family]] = {
    **{family.model_type: (architecture, family) for architecture, family in FAMILIES.items()},
    "mistral": ("llama", FAMILIES["llama"]),
    "mixtral": ("llama", MIXTRAL),
}
"""The name of the architecture in GGUF, and the family, by the ``model_type`` in config.json."""
