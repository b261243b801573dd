"""The part of a recipe that decides the result, as JSON for the fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.output_path import EXTRACTION
from resumerge.recipe.types import (
    Conditional,
    Expert,
    Extraction,
    Mixture,
    Recipe,
    Slice,
    TokenizerSetting,
)


def normalized(recipe: Recipe) -> dict[str, Any]:
    """Return everything in a recipe that decides the result, as JSON: no comments, no notes."""
    if recipe.variants:  # ordered, since units and shards are numbered in this order
        variants = recipe.variants.items()
        return {"sweep": [{"name": name, **normalized(variant)} for name, variant in variants]}
    modules = [
        {"name": module.name, "parameters": _plain(module.parameters)}
        | {"slices": [_slice(slice_) for slice_ in module.slices]}
        for module in recipe.modules
    ]
    is_whole_model = len(modules) == 1 and modules[0]["name"] is None
    stages = {stage.name: normalized(stage) for stage in recipe.stages}
    expert = recipe.extract_expert
    return {
        "merge_method": recipe.merge_method,
        "base_model": str(recipe.base_model) if recipe.base_model else None,
        "parameters": _plain(recipe.parameters),
        "dtype": recipe.dtype,
        "out_dtype": recipe.out_dtype,
        "tokenizer": _tokenizer(recipe.tokenizer) if recipe.tokenizer else None,
        "chat_template": recipe.chat_template,
        **({"experts": "together"} if recipe.experts_together else {}),
        **({"mixture": _mixture(recipe.mixture)} if recipe.mixture else {}),
        **({EXTRACTION: _extraction(recipe.extraction)} if recipe.extraction else {}),
        **({"rank": recipe.rank} if recipe.rank else {}),
        **({} if expert is None else {"extract_expert": expert}),
        **({"stages": stages} if stages else {}),
        **({"slices": modules[0]["slices"]} if is_whole_model else {"modules": modules}),
    }


def _slice(slice_: Slice) -> dict[str, Any]:
    return {
        "base_model": str(slice_.base_model) if slice_.base_model else None,
        "parameters": _plain(slice_.parameters),
        "inputs": [
            {
                "model": str(input_.model),
                "layer_range": list(input_.layer_range) if input_.layer_range else None,
                "parameters": _plain(input_.parameters),
            }
            for input_ in slice_.inputs
        ],
    }


def _tokenizer(setting: TokenizerSetting) -> dict[str, Any]:
    """Return the setting of the vocabulary, in one form for ``tokenizer``, ``tokenizer_source``."""
    return {
        "source": str(setting.source),
        "tokens": {
            token: {
                "model": str(row.model) if row.model else None,
                "token": row.token,
                "token_id": row.token_id,
                "force": row.force,
            }
            for token, row in sorted(setting.tokens.items())
        },
        "pad_to_multiple_of": setting.pad_to_multiple_of,
    }


def _mixture(mixture: Mixture) -> dict[str, Any]:
    return {
        "experts": [_expert(expert) for expert in mixture.experts],
        "shared_experts": [_expert(expert) for expert in mixture.shared_experts],
        "gate_mode": mixture.gate_mode,
        "experts_per_token": mixture.experts_per_token,
        "architecture": mixture.architecture,
        "expert_layout": mixture.expert_layout,
    }


def _extraction(extraction: Extraction) -> dict[str, Any]:
    return {
        name: str(value) if name == "model" else _plain(value)
        for name, value in vars(extraction).items()
        if value is not None
    }


def _expert(expert: Expert) -> dict[str, Any]:
    return {
        "model": str(expert.model),
        "positive_prompts": list(expert.positive_prompts),
        "negative_prompts": list(expert.negative_prompts),
        "noise_scale": expert.noise_scale,
        "residual_scale": expert.residual_scale,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Conditional):
        return {"filter": value.filter, "value": _plain(value.value)}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a recipe with 1.0 equals one with 1
    return value
