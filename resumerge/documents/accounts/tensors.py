"""The uses of every tensor of the models: a part of the documents of plans and runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MOST_NAMES = 100
"""The most unused tensors of one model that a document lists, unless all are requested."""


def describe_accounts(rows: Iterable[Mapping[str, Any]], *, every: bool) -> dict[str, Any]:
    """Return the uses of each model's tensors.

    Args:
        rows: rows of the ledger's table ``accounts``, in order.
        every: whether all unused tensors are listed, and not only the first `MOST_NAMES`.
    """
    models: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        models.setdefault(row["model"], []).append(row)
    return {"sources": [_model(name, rows, every=every) for name, rows in models.items()]}


def _model(name: str, rows: list[Mapping[str, Any]], *, every: bool) -> dict[str, Any]:
    count_by_use = {row["use"]: row["tensors"] for row in rows if row["use"]}
    unused_rows = [row for row in rows if row["reason"]]
    unused_tensors = [
        {"name": name, "reason": row["reason"]}
        for row in unused_rows
        for name in json.loads(row["names"])
    ]
    return {
        "model": name,
        "tensors": sum(row["tensors"] for row in rows),
        "used": sum(count_by_use.values()),
        "uses": count_by_use,
        "reasons": [
            {key: row[key] for key in ("reason", "tensors")} | {"names": json.loads(row["folded"])}
            for row in unused_rows
        ],
        "unused": unused_tensors if every else unused_tensors[:MOST_NAMES],
    }


def describe_outputs(units: Iterable[Mapping[str, Any]], models: list[str]) -> list[dict[str, Any]]:
    """Return the origins of each unit of a run, from the expressions in its ledger.

    A unit that is one matrix of a packed tensor of experts has a name that is in no file.

    Args:
        units: rows of the ledger's table ``units``.
        models: the names of the models; expressions contain indices into this list.
    """
    outputs = []
    for unit in units:
        sources_and_names = list(_leaves(json.loads(unit["expression"])))
        tensors = dict.fromkeys(
            source_and_name for source_and_name in sources_and_names if source_and_name is not None
        )
        origins = [{"model": models[number], "tensor": name} for number, name in tensors]
        outputs.append(
            {"name": unit["name"], "from": origins, "generated": None in sources_and_names}
        )
    return outputs


def _leaves(expression: Any) -> Iterator[tuple[int, str] | None]:
    """Yield (source, name) of each leaf of an expression's JSON; None for a generated leaf."""
    if isinstance(expression, list):
        for part in expression:
            yield from _leaves(part)
    elif isinstance(expression, dict):
        if "source" in expression and "tensor" in expression:
            yield expression["source"], expression["tensor"]
        elif expression.keys() & {"drawn", "filled", "step"}:
            yield None
        for part in expression.values():
            yield from _leaves(part)
