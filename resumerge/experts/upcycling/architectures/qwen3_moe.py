"""Qwen3 MoE."""

from __future__ import annotations

from typing import Any

from resumerge.experts.upcycling.architectures.output_architecture import (
    BIASES,
    NORMS,
    PACKED,
    WEIGHTS,
    Config,
    OutputArchitecture,
    separate_names,
)
from resumerge.recipe.types import Mixture


def _config(dense: Config, mixture: Mixture) -> dict[str, Any]:
    return {
        "num_experts": len(mixture.experts),
        "num_experts_per_tok": mixture.experts_per_token,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "moe_intermediate_size": dense["intermediate_size"],
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
    }


QWEN3_MOE = OutputArchitecture(
    name="Qwen3 MoE",
    model_type="qwen3_moe",
    class_name="Qwen3MoeForCausalLM",
    takes=("qwen3",),
    config=_config,
    layouts={"separate": separate_names("mlp.gate.weight", "mlp.experts"), "packed": PACKED},
    per_layer=(*NORMS, *WEIGHTS, "self_attn.q_norm.weight", "self_attn.k_norm.weight"),
    optional=BIASES,
)
