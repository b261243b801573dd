"""The output's config.json: the reference's, with its own layer count and dtype."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from resumerge.plan.model import Plan
from resumerge.sources.dtypes import FLOATS

_LAYER_COUNT = re.compile(r"^(num|n)_((hidden|decoder)_)?(layers?|blocks?)$")
_PER_LAYER = re.compile(r"layer|pattern|rope")


def output_config(plan: Plan) -> dict[str, Any]:
    """config.json of the output; empty where the reference has none.

    Where layers are stacked, the layer count (at the top or in a nested config) becomes the
    output's, and lists with one entry a layer (``layer_types``) are cut and joined as the layers
    are, each entry from the model that its layer comes from.
    """
    reference = plan.sources[plan.reference].config
    config = _copied(reference)
    dtype = main_dtype(plan)
    if dtype and config:
        config["dtype" if "dtype" in config else "torch_dtype"] = dtype
    if plan.origins and plan.layers.count is not None:
        _stack(config, (), plan, plan.layers.count)
    return config


def main_dtype(plan: Plan) -> str | None:
    """The float dtype (torch's name) that most bytes of the output have."""
    counts: Counter[str] = Counter()
    for unit in plan.units:
        if unit.dtype in FLOATS:
            counts[FLOATS[unit.dtype]] += unit.nbytes
    return counts.most_common(1)[0][0] if counts else None


def _stack(config: dict[str, Any], path: tuple[str, ...], plan: Plan, count: int) -> None:
    for key, value in config.items():
        if isinstance(value, dict):
            _stack(value, (*path, key), plan, count)
        elif type(value) is int and value == count and _LAYER_COUNT.match(key):
            config[key] = len(plan.origins)
        elif isinstance(value, list) and len(value) == count and _PER_LAYER.search(key):
            config[key] = [
                _entry(plan, (*path, key), source, layer, value)
                for source, layer in (origin.inputs[0] for origin in plan.origins)
            ]


def _entry(plan: Plan, path: tuple[str, ...], source: int, layer: int, default: list[Any]) -> Any:
    found: Any = plan.sources[source].config
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    entries = found if isinstance(found, list) and layer < len(found) else default
    return entries[min(layer, len(entries) - 1)]


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
