"""What decides the bytes of the output, and what changed between two plans."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from resumerge.plan.model import BLOCK, NUMERICS, Plan


def fingerprint_parts(plan: Plan) -> dict[str, Any]:
    """Everything that decides the bytes, part by part; threads, memory and batch size do not."""
    return {
        "recipe": plan.recipe.normalized(),
        "seed": plan.seed,
        "shard size": plan.shard_size,
        "numerics version": NUMERICS,
        "block": BLOCK,
        **{f"source {source.ref}": source.identity() for source in plan.sources},
    }


def fingerprint(parts: dict[str, Any]) -> str:
    """SHA-256 of the parts, in hex."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def changes(before: dict[str, Any], after: dict[str, Any], path: str = "") -> list[str]:
    """What differs, a line each: ``recipe.parameters.t: 0.5 -> 0.6``."""
    lines: list[str] = []
    for key in sorted(before.keys() | after.keys()):
        where = f"{path}.{key}" if path else key
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += changes(old, new, where)
        elif old != new:
            lines.append(f"{where}: {_short(old)} -> {_short(new)}")
    return lines


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."
