"""Mixtral, the architecture that mergekit-moe makes of Llama and Mistral models."""

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
    return {
        "num_local_experts": len(mixture.experts),
        "num_experts_per_tok": mixture.experts_per_token,
        "sliding_window": None,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
    }


MIXTRAL = OutputArchitecture(
    name="Mixtral",
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    takes=("llama", "mistral"),
    config=_config,
    layouts={
        "separate": separate_names(
            "block_sparse_moe.gate.weight",
            "block_sparse_moe.experts",
            gate_proj="w1",
            up_proj="w3",
            down_proj="w2",
        ),
        "packed": PACKED,
    },
)
