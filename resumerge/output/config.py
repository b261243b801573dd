"""The output's config.json: the reference's, with its own layer counts and dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from resumerge.output.layer_lists import cut_lists
from resumerge.output.token_ids import renumbered
from resumerge.plan.model import Plan
from resumerge.sources.dtypes import FLOATS


def output_config(plan: Plan) -> dict[str, Any]:
    """config.json of the output; empty where the reference has none.

    Where layers were chosen by slices, the keys that count them (at the top or in a nested config)
    get the output's count, and the lists beside those keys that speak of layers (``layer_types``)
    are cut and joined as the layers are, each entry from the model that its layer comes from.
    """
    config: dict[str, Any] = _copied(plan.sources[plan.reference].config)
    dtype = main_dtype(plan)
    if dtype and config:
        config["dtype" if "dtype" in config else "torch_dtype"] = dtype
    for layers in plan.layer_maps:
        for path in {tuple(key.split(".")[:-1]) for key in layers.keys}:
            own = [(source, layer) for source, layer in (o.inputs[0] for o in layers.origins)]
            sections = [_section(source.config, path) for source in plan.sources]
            cut_lists(
                _section(config, path),
                plan.layers.counts[layers.stack],
                [(sections[source], layer) for source, layer in own],
            )
        for key in layers.keys:
            *path_to, last = key.split(".")
            _section(config, path_to)[last] = len(layers.origins)
    if plan.vocabulary is not None:
        config = renumbered(config, plan.vocabulary, plan.vocabulary.host.source.config)
    return config


def main_dtype(plan: Plan) -> str | None:
    """The float dtype (torch's name) that most bytes of the output have."""
    counts: Counter[str] = Counter()
    for unit in plan.units:
        if unit.dtype in FLOATS:
            counts[FLOATS[unit.dtype]] += unit.nbytes
    return counts.most_common(1)[0][0] if counts else None


def _section(config: Any, path: Any) -> Any:
    for step in path:
        config = config.get(step, {}) if isinstance(config, Mapping) else {}
    return config


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
