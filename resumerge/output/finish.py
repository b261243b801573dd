"""The files beside the shards that make the output a model that loads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from resumerge.output.card import model_card
from resumerge.output.config import output_config
from resumerge.output.index import index_json
from resumerge.plan.model import Plan
from resumerge.sources import fetch_companions, list_companions
from resumerge.sources.index import INDEX_FILE

RECIPE_FILE = "mergekit_config.yml"
"""The recipe as run, under the name that mergekit gives it."""


def companions(
    plan: Plan, name: str, *, offline: bool = False
) -> Iterator[tuple[str, bytes | Path]]:
    """Every file of the output but the shards: its name, and its bytes or the file to copy.

    Tokenizer, generation config and the like are the reference model's. config.json comes last:
    without it no loader takes the folder for a model.

    Args:
        name: of the output, for the model card.
    """
    reference = plan.sources[plan.reference]
    names = [n for n in list_companions(reference, offline=offline) if n != "config.json"]
    fetch_companions(reference, names, offline=offline)
    for companion in names:
        yield companion, reference.folder / companion
    if len(plan.shards) > 1:
        yield INDEX_FILE, index_json(plan).encode()
    yield RECIPE_FILE, plan.recipe.text.encode()
    library = "sentence-transformers" if "modules.json" in names else "transformers"
    yield "README.md", model_card(plan, name, library).encode()
    config = output_config(plan)
    if config:
        yield "config.json", (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
