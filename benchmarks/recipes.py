"""One typical recipe for every merge method, over the models of ``benchmarks.models``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shape:
    """What a method's recipe needs.

    Attributes:
        tunes: how many fine-tunes it merges.
        base: whether the base takes part.
        per_model: parameters of each fine-tune.
        overall: parameters of the whole merge.
    """

    tunes: int = 2
    base: bool = True
    per_model: dict[str, Any] = field(default_factory=dict)
    overall: dict[str, Any] = field(default_factory=dict)


SHAPES = {
    "linear": Shape(base=False, per_model={"weight": 0.5}),
    "slerp": Shape(tunes=1, overall={"t": 0.4}),
    "nuslerp": Shape(base=False, per_model={"weight": 0.5}),
    "multislerp": Shape(base=False, per_model={"weight": 0.5}),
    "karcher": Shape(base=False),
    "task_arithmetic": Shape(per_model={"weight": 0.5}),
    "ties": Shape(per_model={"weight": 0.5, "density": 0.5}),
    "dare_linear": Shape(per_model={"weight": 0.5, "density": 0.5}),
    "dare_ties": Shape(per_model={"weight": 0.5, "density": 0.5}),
    "della": Shape(per_model={"weight": 0.5, "density": 0.5}),
    "della_linear": Shape(per_model={"weight": 0.5, "density": 0.5}),
    "breadcrumbs": Shape(per_model={"weight": 0.5, "density": 0.9}),
    "breadcrumbs_ties": Shape(per_model={"weight": 0.5, "density": 0.9}),
    "sce": Shape(overall={"select_topk": 0.5}),
    "model_stock": Shape(),
    "nearswap": Shape(tunes=1, overall={"t": 0.001}),
    "arcee_fusion": Shape(tunes=1),
    "ram": Shape(),
    "ramplus_tl": Shape(),
    "passthrough": Shape(tunes=1, base=False),
    "consensus_ta": Shape(per_model={"weight": 0.5}),
    "iso_c": Shape(),
    "trimmed_mean": Shape(base=False),
}


def most_tunes(methods: list[str]) -> int:
    """How many fine-tunes these methods need."""
    return max(SHAPES[method].tunes for method in methods)


def inputs(method: str, models: list[Path]) -> list[Path]:
    """The model folders that a method's recipe reads; ``models`` is the base, then fine-tunes."""
    shape = SHAPES[method]
    return [models[0]] * shape.base + models[1 : 1 + shape.tunes]


def recipe(method: str, models: list[Path], tunes: int | None = None) -> str:
    """The YAML text (in its JSON subset) of a method's recipe.

    Args:
        models: the base, then fine-tunes.
        tunes: how many fine-tunes take part; by default what is typical of the method.
    """
    shape = SHAPES[method]
    count = shape.tunes if tunes is None else tunes
    document: dict[str, Any] = {
        "merge_method": method,
        "models": [
            {"model": str(path), **({"parameters": shape.per_model} if shape.per_model else {})}
            for path in models[1 : 1 + count]
        ],
        "dtype": "bfloat16",
    }
    if shape.base:
        document["base_model"] = str(models[0])
    if shape.overall:
        document["parameters"] = shape.overall
    return json.dumps(document, indent=2) + "\n"
