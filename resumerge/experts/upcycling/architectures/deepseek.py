"""DeepSeek MoE. Its modeling code is in a repo on the Hub, and reads separate matrices only."""

from __future__ import annotations

from typing import Any

from resumerge.experts.upcycling.architectures.output_architecture import (
    BIASES,
    Config,
    OutputArchitecture,
    separate_names,
)
from resumerge.recipe.types import Mixture

_CODE = "deepseek-ai/deepseek-moe-16b-base--"


def _config(dense: Config, mixture: Mixture) -> dict[str, Any]:
    return {
        "n_routed_experts": len(mixture.experts),
        "n_shared_experts": len(mixture.shared_experts) or None,
        "num_experts_per_tok": mixture.experts_per_token,
        "first_k_dense_replace": 0,
        "moe_layer_freq": 1,
        "scoring_func": "softmax",
        "norm_topk_prob": True,
        "moe_intermediate_size": dense["intermediate_size"],
        "auto_map": {
            "AutoConfig": f"{_CODE}configuration_deepseek.DeepseekConfig",
            "AutoModel": f"{_CODE}modeling_deepseek.DeepseekModel",
            "AutoModelForCausalLM": f"{_CODE}modeling_deepseek.DeepseekForCausalLM",
        },
    }


DEEPSEEK = OutputArchitecture(
    name="DeepSeek MoE",
    model_type="deepseek",
    class_name="DeepseekForCausalLM",
    takes=("llama", "mistral"),
    config=_config,
    layouts={"separate": separate_names("mlp.gate.weight", "mlp.experts")},
    optional=BIASES,
    shared=(0, 1),
    shared_matrices={
        matrix: f"mlp.shared_experts.{matrix}.weight"
        for matrix in ("gate_proj", "up_proj", "down_proj")
    },
)
