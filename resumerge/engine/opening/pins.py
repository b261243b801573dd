"""The pins of a run: the versions and ranks in its ledger, with which it is planned again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.ledger import Ledger
from resumerge.recipe import Recipe
from resumerge.recipe.references import is_local
from resumerge.sources.types import REMOTE


def pins_of(ledger: Ledger, *, reopen_local: bool) -> dict[str, dict[str, Any]]:
    """Return the pins of a run's sources, by the text of their references.

    Args:
        ledger: the ledger of the run, with the rows of its sources.
        reopen_local: whether local models have no pin, so that they are opened at the recipe's
            paths.
    """
    source_rows = ledger.sources()
    return {row["model"]: _pin(row, reopen_local=reopen_local) for row in source_rows}


def ranks_of(ledger: Ledger, recipe: Recipe) -> dict[str, int]:
    """Return the ranks of an extracted adapter's modules in a run, by module.

    The result is empty if the recipe does not choose ranks by the computed differences. Until all
    differences are computed, the ranks are the highest ones that may be chosen.
    """
    if recipe.extraction is None or not recipe.extraction.chooses_ranks:
        return {}
    expressions = {row["name"]: json.loads(row["expression"]) for row in ledger.units.all()}
    ranks = {name: expression.get("rank") for name, expression in expressions.items()}
    return {name: rank for name, rank in ranks.items() if type(rank) is int}


def _pin(source: Mapping[str, Any], *, reopen_local: bool) -> dict[str, Any]:
    if source["kind"] == "lora":
        return {}
    if source["kind"] in REMOTE:
        return {"revision": source["revision"]}
    path = pinned_path(source)
    is_elsewhere = not path.exists() and is_local(source["model"])
    return {} if reopen_local or is_elsewhere else {"path": path}


def pinned_path(source: Mapping[str, Any]) -> Path:
    """Return the path where a run found a local model: its folder, or its single file.

    Args:
        source: the row of the source in the ledger.
    """
    folder, identity = Path(source["folder"]), json.loads(source["identity"])
    return folder / next(iter(identity.get("files", {})), "") if identity.get("single") else folder
