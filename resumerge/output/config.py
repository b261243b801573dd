"""The output's config.json: the reference model's, with the output's layer counts and dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from resumerge.experts.extraction import dense_config
from resumerge.layout import SourceLayer, move_settings, section_at, untied_head
from resumerge.output.token_ids import remap_token_ids
from resumerge.planning.plan import Plan
from resumerge.sources.quantised import unquantised_config
from resumerge.sources.tied_names import tied_names, untied_config
from resumerge.tensors.dtypes import FLOATS


def output_config(plan: Plan) -> dict[str, Any]:
    """Return the content of the output's config.json; empty if the reference has none.

    With slices, the keys that count layers (at the top or in a nested config) get the output's
    count. In settings with one entry per layer (``layer_types``), each entry comes from the model
    of its layer. This includes settings that config.json does not state and transformers derives.
    The reference's settings of quantised weights are replaced by the output's.
    """
    source_config = plan.mixture.config if plan.mixture else plan.reference_model.config
    config: dict[str, Any] = _copied(unquantised_config(source_config))
    if plan.recipe.extract_expert is not None:
        config = dense_config(config)
    dtype = main_dtype(plan)
    if dtype and config:
        config["dtype" if "dtype" in config else "torch_dtype"] = dtype
    for layers in plan.layer_maps:
        source_layers = [
            SourceLayer(model, plan.model(model).config, layer)
            for model, layer in (origin.inputs[0] for origin in layers.origins)
        ]
        count = plan.layers.counts[layers.stack]
        for path, section in move_settings(config, layers.keys, count, source_layers)[0].items():
            written_section: Any = section_at(config, path)
            written_section.update(section)
    if config and _has_own_head(plan):
        config = untied_config(config)
    if plan.quantised is not None:
        config["quantization_config"] = _copied(plan.quantised.config)
    if plan.vocabulary is not None:
        config = remap_token_ids(config, plan.vocabulary, plan.vocabulary.host.source.config)
    return config


def _has_own_head(plan: Plan) -> bool:
    """Return whether the output stores a tensor that the reference ties, or uses an untied head."""
    reference = plan.reference_model
    tied = tied_names(reference.config, reference.tensors)
    if tied and not tied.keys().isdisjoint(plan.tensors()):
        return True
    models = (*plan.sources, *plan.stage_models)
    head_tensors = {model.tensors[name] for model in models if (name := untied_head(model))}
    names_of_heads = {head.name for head in head_tensors}
    return any(node.name in names_of_heads and node in head_tensors for node in plan.nodes())


def main_dtype(plan: Plan, prefix: str = "") -> str | None:
    """Return the float dtype (torch's name) of most bytes of the output; None without floats.

    Quantised weights do not count.

    Args:
        plan: the plan of one model, whose units are counted.
        prefix: a text with which the names of the counted tensors begin; empty for all tensors.
    """
    bytes_by_dtype: Counter[str] = Counter()
    quantised_names = plan.quantised.tensors if plan.quantised else frozenset()
    for unit in plan.units:
        if (
            unit.name not in quantised_names
            and unit.dtype in FLOATS
            and unit.name.startswith(prefix)
        ):
            bytes_by_dtype[FLOATS[unit.dtype]] += unit.nbytes
    return bytes_by_dtype.most_common(1)[0][0] if bytes_by_dtype else None


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
