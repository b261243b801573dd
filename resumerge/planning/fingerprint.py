"""The fingerprint of a plan: a hash of everything that decides the output's bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from resumerge.methods import METHODS
from resumerge.planning.plan import NUMERICS, Plan
from resumerge.recipe.normalized import normalized
from resumerge.tensors import Computed
from resumerge.tensors.target import BLOCK_ELEMENTS

METHOD = "method"
TOKENIZER = "tokenizer of "
CHAT_TEMPLATE = "chat template"
KEPT = "kept stages"
LIBRARIES = "libraries"
UNSHARED = "tensors that not all models have"


def fingerprint_parts(plan: Plan) -> dict[str, Any]:
    """Return everything that decides the output's bytes, as JSON values by the names of parts.

    Threads, memory and the uncommitted limit do not affect the bytes.
    """
    return {
        "recipe": normalized(plan.recipe),
        "seed": plan.seed,
        "shard size": plan.shard_size,
        "numerics version": NUMERICS,
        "block": BLOCK_ELEMENTS,
        **{f"source {source.ref}": source.identity() for source in plan.sources},
        **({UNSHARED: plan.unshared.value} if plan.unshared.value else {}),
        **({KEPT: sorted(plan.kept)} if plan.kept else {}),
        **({LIBRARIES: libraries} if (libraries := _libraries(plan)) else {}),
        **_parts_of_document(plan, ""),
        **{
            key: part
            for name, document in _other_documents(plan)
            for key, part in _parts_of_document(document, f" of {name}").items()
        },
    }


def _other_documents(plan: Plan) -> Iterator[tuple[str, Plan]]:
    yield from ((stage.recipe.name, stage) for stage in plan.stages)
    yield from plan.variants.items()


def _libraries(plan: Plan) -> dict[str, str]:
    """Return the versions of the libraries that decide the results of steps."""
    steps = {node.step for node in plan.nodes() if isinstance(node, Computed)}
    return {name: version for step in steps for name, version in step.libraries.items()}


def _parts_of_document(plan: Plan, suffix: str) -> dict[str, Any]:
    template = plan.chat_template
    return {
        f"{METHOD}{suffix}": _identity(plan),
        **({f"{CHAT_TEMPLATE}{suffix}": template} if template else {}),
        **{f"{TOKENIZER}{model}": digest for model, digest in plan.tokenizers.items()},
    }


def _identity(plan: Plan) -> dict[str, Any]:
    if plan.mixture is not None:
        return {"name": plan.recipe.merge_method, "architecture": plan.mixture.architecture}
    if plan.adapter is not None:
        method_identity = (
            METHODS.identity(plan.recipe.merge_method) if plan.recipe.has_method else {}
        )
        return {**method_identity, "name": plan.recipe.merge_method, "numpy": np.__version__}
    return METHODS.identity(plan.recipe.merge_method)


def methods_in(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a fingerprint that identify merge methods and their code."""
    return {key: part for key, part in parts.items() if key.split(" of ")[0] == METHOD}


def fingerprint(parts: dict[str, Any]) -> str:
    """Return the SHA-256 of the parts, in hex."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the differences, one line each: ``recipe.slices[0].parameters.t: 0.5 -> 0.6``."""
    lines: list[str] = []
    for key in sorted(before.keys() | after.keys()):
        lines += _changes(key, before.get(key), after.get(key))
    return lines


def _changes(path: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [f"{path}.{line}" for line in changes(before, after)]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after))
        return [line for i, (b, a) in pairs for line in _changes(f"{path}[{i}]", b, a)]
    old_text, new_text = json.dumps(before), json.dumps(after)  # NaN is equal to itself as text
    return [] if old_text == new_text else [f"{path}: {_short(old_text)} -> {_short(new_text)}"]


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
