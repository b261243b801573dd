"""``model.safetensors.index.json`` of the output."""

from __future__ import annotations

import json

from resumerge.planning.plan import Plan


def index_json(plan: Plan) -> str:
    """Which shard holds which tensor, as transformers reads it."""
    return json.dumps(
        {
            "metadata": {"total_size": sum(unit.nbytes for unit in plan.units)},
            "weight_map": {
                name: plan.shards[shard].name
                for name, shard in sorted((name, u.shard) for u in plan.units for name in u.tensors)
            },
        },
        indent=2,
        ensure_ascii=False,
    )
