"""Plans of recipes for models that exist as headers only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumerge.planning import Plan
from resumerge.planning.plan import Expression, Unit
from resumerge.planning.planner import make_plan
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.sources.dtypes import BITS
from resumerge.sources.types import Source, SourceFile, TensorInfo

WIDTH, TOKENS = 4, 10
REST = ("self_attn.q_proj.weight", "mlp.up_proj.weight", "input_layernorm.weight")


def tensor(name: str, shape: tuple[int, ...], dtype: str = "F32", offset: int = 0) -> TensorInfo:
    return TensorInfo(
        name, dtype, shape, "m.safetensors", offset, math.prod(shape) * BITS[dtype] // 8
    )


def llama(
    name: str,
    layers: int = 3,
    dtype: str = "F32",
    *,
    others: Iterable[TensorInfo] = (),
    without: Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Source:
    """A model of some layers.

    Args:
        others: tensors that it has in place of its own of these names, or besides.
        without: names of tensors that it lacks.
        config: what its config.json has besides.
    """
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TOKENS, WIDTH)}
    for layer in range(layers):
        for rest in REST:
            shape = (WIDTH,) if "norm" in rest else (WIDTH, WIDTH)
            shapes[f"model.layers.{layer}.{rest}"] = shape
    shapes |= {"model.norm.weight": (WIDTH,), "lm_head.weight": (TOKENS, WIDTH)}
    made = {name: tensor(name, shape, dtype) for name, shape in shapes.items()}
    made |= {info.name: info for info in others}
    offset, placed = 0, {}
    for key, info in made.items():
        if key not in set(without):
            placed[key] = replace(info, offset=offset)
            offset += info.nbytes
    facts = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "vocab_size": TOKENS,
        "tie_word_embeddings": False,
        **(config or {}),
    }
    files = {"m.safetensors": SourceFile("m.safetensors", offset, {"header": name})}
    return Source(
        ModelRef(name, name), "local", Path("/nowhere") / name, None, facts, placed, files
    )


def plan(recipe: str, *models: Source, seed: int = 0, shard_size: int = 1 << 30) -> Plan:
    """The plan of a recipe."""
    parsed = parse_recipe(recipe)
    given = {source.ref.name: source for source in models}
    sources = {ref: replace(given[ref.name], ref=ref) for ref in parsed.models}
    return make_plan(parsed, sources, seed=seed, shard_size=shard_size)


def units(found: Plan) -> dict[str, Unit]:
    """The units by name."""
    return {unit.name: unit for unit in found.units}


def expressions(found: Plan) -> dict[str, Expression]:
    """What computes each tensor, by name."""
    return {unit.name: unit.expression for unit in found.units}
