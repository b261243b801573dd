"""Dense models that exist as headers only, and plans of mixtures of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from made_up_plans import llama, plan, tensor

from resumerge.planning import Plan
from resumerge.planning.plan import Unit
from resumerge.sources.types import Source
from resumerge.tensors import Stored, stored_in

TOKENS, HIDDEN, INNER, HEADS, KEYS = 20, 8, 12, 4, 2
SIZES = {
    "vocab_size": TOKENS,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
}
ATTENTION = {"q": HIDDEN, "k": HIDDEN // 2, "v": HIDDEN // 2, "o": HIDDEN}
"""The outputs of each matrix."""

BASE = """
base_model: base
gate_mode: random
experts: [{source_model: a}, {source_model: b}]
"""


def layer(kind: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's tensors, by name in the layer."""
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.gate_proj.weight": (INNER, HIDDEN),
        "mlp.up_proj.weight": (INNER, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INNER),
    }
    shapes |= {f"self_attn.{p}_proj.weight": (rows, HIDDEN) for p, rows in ATTENTION.items()}
    if kind == "qwen2":
        shapes |= {f"self_attn.{p}_proj.bias": (ATTENTION[p],) for p in "qkv"}
    if kind == "qwen3":
        shapes |= {f"self_attn.{p}_norm.weight": (HIDDEN // HEADS,) for p in "qk"}
    return shapes


def dense(
    name: str,
    kind: str = "llama",
    layers: int = 2,
    dtype: str = "F32",
    *,
    others: Iterable[Stored] = (),
    without: Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Source:
    """Return a dense model, with the arguments of `llama`."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TOKENS, HIDDEN)}
    for number in range(layers):
        shapes |= {f"model.layers.{number}.{rest}": s for rest, s in layer(kind).items()}
    shapes |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (TOKENS, HIDDEN)}
    own = [tensor(of, shape, dtype) for of, shape in shapes.items()]
    facts = {"model_type": kind, "num_hidden_layers": layers, **SIZES}
    facts |= {"head_dim": HIDDEN // HEADS} if kind == "qwen3" else {}
    facts |= config or {}
    return llama(name, layers, dtype, others=[*own, *others], without=without, config=facts)


def mixture_of(
    recipe: str, kind: str = "llama", base: Source | None = None, **others: Source
) -> Plan:
    """Return the plan of a mixture of `base`, `a` and `b`; keywords replace or add models."""
    models = {name: dense(name, kind) for name in ("base", "a", "b")}
    models |= {"base": base or models["base"], **others}
    return plan(recipe, *models.values(), seed=5)


def made_of(found: Plan, unit: Unit) -> list[str]:
    """Return the stored tensors that a unit is computed from, as ``MODEL:NAME``."""
    return [f"{found.sources[s.source].ref}:{s.name}" for s in stored_in(unit.expression)]
