"""The indexes of the output: one for a model, or one for each component of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import PurePosixPath

from resumerge.planning.plan import Plan, Shard
from resumerge.sources.index import INDEX_SUFFIX


def index_files(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the name and JSON text of an index for each folder with more than one shard."""
    for folder, shards_of_folder in groupby(
        plan.shards, lambda shard: PurePosixPath(shard.name).parent
    ):
        shards = list(shards_of_folder)
        if len(shards) > 1:
            stem = PurePosixPath(shards[0].name).name.partition("-")[0]
            yield str(folder / f"{stem}.safetensors{INDEX_SUFFIX}"), index_json(plan, shards)


def index_json(plan: Plan, shards: list[Shard]) -> str:
    """Return the JSON text of an index: the shard of each tensor, and the total size in bytes.

    Args:
        plan: the plan that these shards are a part of.
        shards: the shards of one folder, in order.
    """
    units = [unit for unit in plan.units if shards[0].first <= unit.number < shards[-1].last]
    prefix = shards[0].name.removesuffix(PurePosixPath(shards[0].name).name)
    files = {
        name.removeprefix(prefix): plan.shards[unit.shard].name.removeprefix(prefix)
        for unit in units
        for name in unit.tensors
    }
    return json.dumps(
        {
            "metadata": {"total_size": sum(unit.nbytes for unit in units)},
            "weight_map": dict(sorted(files.items())),
        },
        indent=2,
        ensure_ascii=False,
    )
