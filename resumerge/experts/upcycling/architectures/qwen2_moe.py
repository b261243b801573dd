"""Qwen2 MoE: experts, and one shared expert with a gate of its own."""

from __future__ import annotations

from typing import Any

from resumerge.experts.upcycling.architectures.output_architecture import (
    PACKED,
    Config,
    OutputArchitecture,
    separate_names,
)
from resumerge.recipe.types import Mixture


def _config(dense: Config, mixture: Mixture) -> dict[str, Any]:
    layers, mlp_width = dense["num_hidden_layers"], dense["intermediate_size"]
    return {
        "num_experts": len(mixture.experts),
        "num_experts_per_tok": mixture.experts_per_token,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "qkv_bias": True,
        "moe_intermediate_size": mlp_width,
        "shared_expert_intermediate_size": mlp_width,
        "layer_types": ["full_attention"] * layers,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_window_layers": dense.get("max_window_layers", 28),
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
    }


QWEN2_MOE = OutputArchitecture(
    name="Qwen MoE",
    model_type="qwen2_moe",
    class_name="Qwen2MoeForCausalLM",
    takes=("llama", "mistral", "qwen2"),
    config=_config,
    layouts={"separate": separate_names("mlp.gate.weight", "mlp.experts"), "packed": PACKED},
    zeros={f"self_attn.{p}_proj.bias": f"self_attn.{p}_proj.weight" for p in "qkv"},
    shared=(1, 1),
    shared_matrices={
        matrix: f"mlp.shared_expert.{matrix}.weight"
        for matrix in ("gate_proj", "up_proj", "down_proj")
    },
    shared_gate="mlp.shared_expert_gate.weight",
)
