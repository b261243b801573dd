"""The tensors of dense models that a mixture is made of, and their comparison with config.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.experts.upcycling.architectures.output_architecture import Config
from resumerge.tensors import Tensor

STACK = "model.layers"
"""The name of the stack of layers in every dense model that a mixture can be made of."""

OUTSIDE = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
"""The tensors outside of layers that the mixture takes from the base."""

MATRICES = ("gate_proj", "up_proj", "down_proj")
"""The matrices of an MLP in every dense model that a mixture can be made of."""

FIELDS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"),
    *("num_attention_heads", "num_key_value_heads"),
)
_PARTS = ("mlp.gate_proj", "self_attn.q_proj", "self_attn.k_proj")


def wrong_fields(
    config: Config, tensors: Mapping[str, Tensor], layers: int
) -> Iterator[tuple[str, str]]:
    """Yield (expected, found) for each field of config.json that contradicts the tensors.

    The base is checked because the mixture's config.json is made from the base's.

    Args:
        config: the base's config.json, with the defaults of its model type.
        tensors: the base's tensors, which include all tensors that `planner.py` needs.
        layers: the number of layers of the base.
    """
    config_values: dict[str, int] = {}
    for name in (*FIELDS, *(["head_dim"] if config.get("head_dim") is not None else [])):
        value = config.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield f"{name}: a number, 1 or more", _shown(name, value)
            return
        config_values[name] = value
    matrix_names = [OUTSIDE[0]]
    matrix_names += [f"{STACK}.{layer}.{part}.weight" for layer in range(layers) for part in _PARTS]
    for name in matrix_names:
        if len(tensors[name].shape) != 2:
            yield f"{name}: a matrix", f"the shape {list(tensors[name].shape)}"
            return
    head_width = config_values.get(
        "head_dim", config_values["hidden_size"] // config_values["num_attention_heads"]
    )
    rows, width = tensors[OUTSIDE[0]].shape
    yield from _differs("vocab_size", rows, config_values["vocab_size"])
    yield from _differs("hidden_size", width, config_values["hidden_size"])
    yield from _differs("num_hidden_layers", layers, config_values["num_hidden_layers"])
    for layer in range(layers):
        shapes = {part: tensors[f"{STACK}.{layer}.{part}.weight"].shape for part in _PARTS}
        mlp_width = shapes["mlp.gate_proj"][0]
        query_rows, key_rows = shapes["self_attn.q_proj"][0], shapes["self_attn.k_proj"][0]
        differences = [
            *_differs("intermediate_size", mlp_width, config_values["intermediate_size"]),
            *_differs(
                "num_attention_heads * head_dim",
                query_rows,
                config_values["num_attention_heads"] * head_width,
            ),
            *_differs(
                "num_key_value_heads * head_dim",
                key_rows,
                config_values["num_key_value_heads"] * head_width,
            ),
        ]
        yield from differences
        if differences:
            return


def _differs(name: str, actual: int, stated: int) -> Iterator[tuple[str, str]]:
    if actual != stated:
        yield f"{name}: {actual}, which the tensors have", _shown(name, stated)


def _shown(name: str, value: Any) -> str:
    return f"{name}: {'none' if value is None else value}"
