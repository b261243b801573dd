"""Promise: stacks of every class whose layers differ fit the class, each layer of its kind.

transformers builds the models on the meta device, with the default sizes of their classes: names
and shapes, no numbers. The plan of a stack is compared with the model that transformers builds from
the stack's config.json.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_plans import plan
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from resumerge.errors import InputError
from resumerge.layout.layer_rules import RULES
from resumerge.output.config import output_config
from resumerge.planning import Plan
from resumerge.recipe import ModelRef
from resumerge.sources.types import Source, SourceFile
from resumerge.tensors import Stored

LAYERS = 8
RANGES = ((0, 5), (3, 8))
ORDER = [n for first, stop in RANGES for n in range(first, stop)]
RECIPE = "merge_method: passthrough\nslices:\n" + "".join(
    f"  - sources: [{{model: a, layer_range: [{first}, {stop}]}}]\n" for first, stop in RANGES
)
OPTIONS: dict[str, dict[str, Any]] = {
    "nemotron_h": {"layers_block_type": ["linear_attention", "mlp", "full_attention", "moe"] * 2},
    "gpt_neo": {"num_layers": LAYERS, "attention_types": [[["global", "local"], 4]]},
    "gemma3n_text": {"num_kv_shared_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 4},
    "ministral": {"head_dim": 64},
    "qwen3_vl_vision": {"deepstack_visual_indexes": [1, 2]},
    "qwen3_vl_moe_vision": {"deepstack_visual_indexes": [1, 2]},
    "cohere_compass_vision": {"deepstack_visual_indexes": [1, 2]},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 4},
    "reformer": {"is_decoder": True, "attn_layers": ["local", "lsh"] * 4},
    "moonshine_streaming_encoder": {"sliding_windows": [[16, 4], [16, 0]] * 4},
    "dots3_note_vision_encoder": {"pyramid_num_routed": [-1] * 4 + [4, 8, 12, 16]},
}
"""What classes are given beside the number of layers."""
REFUSED = {
    "the class computes from a layer's number": "diffllama gpt2_scaled inkling2_text",
    "one layer of a period": "jamba",
    "tensors outside have a part for each layer": "embedding_gemma2_text gemma3n_text gemma4_text",
    "another layer or module follows": "granite_speech5_encoder granite_docling_vision",
    "shared blocks": "zamba2",
}
UNBUILT = "evolla qwen4_exp_text cohere_compass_text"
"""Types without a model of their own in transformers' mappings, or that only an option builds."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Keys of numbers of experts, which are few here: each is planned."""
KINDS = ("layer_types", "mlp_layer_types", "layers_block_type", "no_rope_layers", "indexer_types")
KEPT = {"num_kv_shared_layers", "residual_multiplier"}
"""Keys of rules that are numbers, not lists: they stay in config.json."""


def config_of(model_type: str) -> Any:
    cls = CONFIG_MAPPING[model_type]
    counted = "num_layers" if "num_layers" in vars(cls) else "num_hidden_layers"
    options = OPTIONS.get(model_type, {})
    if model_type not in ("nemotron_h", "reformer"):
        options = {counted: LAYERS, **options}
    config = cls(**options)
    for key in EXPERTS:
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, min(getattr(config, key), 4))
    return config


def built(config: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a model of this config, each under one of its names."""
    causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    with torch.device("meta"):
        model = (AutoModelForCausalLM if causal else AutoModel).from_config(config)
    unique: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (name, tensor))
    return dict(unique.values())


def source_of(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Source:
    placed, offset = {}, 0
    for name, tensor in tensors.items():
        dtype = "F32" if tensor.dtype.is_floating_point else "I64"
        placed[name] = Stored(name, dtype, tuple(tensor.shape), "m.safetensors", offset)
        offset += placed[name].nbytes
    files = {"m.safetensors": SourceFile("m.safetensors", offset, {"header": "a"})}
    return Source(
        ref=ModelRef("a", "a"),
        kind="local",
        folder=Path("/nowhere/a"),
        revision=None,
        config=config,
        tensors=placed,
        files=files,
    )


def left_to_the_class(config: Any) -> dict[str, Any]:
    """Return config.json without the lists that the class derives, unless in `OPTIONS`."""
    model_type = config.model_type
    given = OPTIONS.get(model_type, {})
    lists = {rule.name for rule in RULES[model_type]} - KEPT - given.keys()
    stated = json.loads(json.dumps(config.to_dict(), default=str))
    return {
        key: value
        for key, value in stated.items()
        if key not in lists or not isinstance(value, list | dict)
    }


def models() -> list[str]:
    """Return the types that transformers has a model for.

    The types come from lists of names, because a list of classes would import every model.
    """
    own = MODEL_MAPPING_NAMES.keys() | MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
    return sorted(set(RULES) & own - set(UNBUILT.split()))


@pytest.mark.parametrize("model_type", models())
def test_a_stack_fits_its_class(model_type: str) -> None:
    logging.disable(logging.CRITICAL)
    try:
        config = config_of(model_type)
        source = source_of(built(config), left_to_the_class(config))
        refused = {name for names in REFUSED.values() for name in names.split()}
        if model_type in refused:
            with pytest.raises(InputError):
                plan(RECIPE, source)
            return
        found = plan(RECIPE, source)
        stacked = type(config).from_dict(output_config(found))
        assert shapes(found) == {n: tuple(t.shape) for n, t in built(stacked).items()}
    finally:
        logging.disable(logging.NOTSET)
    for key in KINDS:
        before = getattr(config, key, None)
        if isinstance(before, list) and len(before) == LAYERS:
            assert getattr(stacked, key) == [before[n] for n in ORDER], key


def shapes(found: Plan) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in found.tensors().items()}
