"""``resumerge explain``: the value of each parameter of a recipe, for every tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from resumerge.accounts import origins
from resumerge.engine.context import RunContext
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.layout.groups import LayerKey, kind_of, layer_key, layer_names
from resumerge.ledger.run_store import RunStore
from resumerge.methods import METHODS, Value
from resumerge.options import Options
from resumerge.planning import Plan, read_recipe
from resumerge.storage import Storage
from resumerge.tensors import Adapted, Combined, Merged, Tensor


@dataclass(frozen=True)
class ModelSetting:
    """The role of a model in a tensor: its name, whether it is the base, and its parameters."""

    model: str
    base: bool
    parameters: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Setting:
    """The method of a tensor, its parameters, and its models.

    The method is ``adapter`` if only an adapter changes the tensor, and None for a copy.
    """

    method: str | None
    parameters: tuple[tuple[str, Value], ...]
    models: tuple[ModelSetting, ...]


Settings = tuple[Setting, ...]
"""The different settings of a tensor; more than one only for a packed tensor of experts."""

Profile = tuple[tuple[LayerKey, Settings], ...]
"""The settings of a kind of tensor by layer; a single entry if they are equal in all layers."""


def explain(config: Path, options: Options, reporter: Reporter) -> dict[str, Any]:
    """Return the document of ``explain --json``. Only the headers of the models are read.

    Args:
        config: the path of the recipe.
        options: the options that planning reads, such as the state folder and `offline`.
        reporter: receives a note if a server is slow.

    Raises:
        InputError: the recipe cannot be planned.
        Resumable: a model cannot be reached now.
    """
    context = RunContext(options, reporter, Storage(), StopRequest(), RunStore(options.state_dir))
    plan, _ = pinned_plan(context, read_recipe(config), None)
    return {
        "recipe": config.name,
        "stages": [_stage(name, document_plan, plan) for name, document_plan in _documents(plan)],
        "notes": list(plan.notes),
    }


def _documents(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield (name, plan) of each document, and of each variant of a sweep."""
    yield from ((stage.recipe.name, stage) for stage in plan.stages)
    yield from plan.variants.items() or [("", plan)]


def _stage(document: str, plan: Plan, whole: Plan) -> dict[str, Any]:
    """Return the parameters' values of one document of a recipe.

    Args:
        document: the name of the document, or of a variant of a sweep; empty for a last document
            without variants.
        plan: the plan of this document, or of this variant.
        whole: the plan of the recipe, with the plans of all stages; for a last document without
            variants, it is `plan`.
    """
    earlier_stages = {
        id(unit.expression): stage.recipe.name
        for stage in whole.stages
        if stage is not plan
        for unit in stage.units
    }
    tensors = plan.tensors()
    merge_settings = {name: [*_merges(tensor, earlier_stages)] for name, tensor in tensors.items()}
    copied_tensors = {name: tensor for name, tensor in tensors.items() if not merge_settings[name]}
    sources = {origin.name: origin.tensors for origin in origins(whole.sources, copied_tensors)}
    layers: dict[str, dict[LayerKey, dict[Setting, None]]] = {}
    kind_counts: dict[str, int] = {}
    for name, tensor in tensors.items():
        kind = kind_of(name)
        settings_of_tensor = merge_settings[name] or [_copy(tensor, earlier_stages, sources[name])]
        layers.setdefault(kind, {}).setdefault(layer_key(name), {}).update(
            dict.fromkeys(settings_of_tensor)
        )
        kind_counts[kind] = kind_counts.get(kind, 0) + 1
    kinds_by_profile: dict[Profile, list[str]] = {}
    for kind, settings in layers.items():
        kinds_by_profile.setdefault(_profile(settings), []).append(kind)
    names = layer_names(layer_key(name) for name in tensors)
    method = METHODS[plan.recipe.merge_method] if plan.recipe.has_method else None
    return {
        "name": document,
        "method": plan.method,
        "models": [ref.text for ref in plan.recipe.models],
        "parameters": {parameter.name: parameter.meaning for parameter in method.parameters}
        if method
        else {},
        "groups": [
            {
                "kinds": kinds,
                "tensors": sum(kind_counts[kind] for kind in kinds),
                "rows": [*_rows(profile, names)],
            }
            for profile, kinds in kinds_by_profile.items()
        ],
    }


def _merges(tensor: Tensor, beneath: Mapping[int, str]) -> Iterator[Setting]:
    """Yield the settings of the merges in a tensor's tree; results of other stages are leaves.

    Args:
        tensor: the root of the tree.
        beneath: names of the stages by the ids of their tensors.
    """
    if id(tensor) in beneath:
        return
    if isinstance(tensor, Combined):
        tensor = tensor.core
    if isinstance(tensor, Merged):
        models = [*tensor.models] or [""] * len(tensor.operands)
        yield Setting(
            tensor.method,
            tuple(tensor.params.items()),
            tuple(
                ModelSetting(model, number == tensor.base, tuple(parameters.items()))
                for number, (model, parameters) in enumerate(zip(models, tensor.per_operand))
            ),
        )
        return
    for child in tensor.children():
        yield from _merges(child, beneath)


def _copy(
    tensor: Tensor, beneath: Mapping[int, str], sources: Sequence[tuple[str, str]]
) -> Setting:
    """Return the setting of a tensor that this document does not merge, with its source models.

    The models are stages, if the tensor contains results of stages.
    """
    adapted_models = [node.models[1] for node in tensor.nodes() if isinstance(node, Adapted)]
    if adapted_models and id(tensor) not in beneath:
        return Setting("adapter", (), (ModelSetting(adapted_models[-1], False, ()),))
    stage_names = [beneath[id(node)] for node in tensor.nodes() if id(node) in beneath]
    models = dict.fromkeys(stage_names or (model for model, _ in sources))
    return Setting(None, (), tuple(ModelSetting(model, False, ()) for model in models))


def _profile(settings: Mapping[LayerKey, Mapping[Setting, None]]) -> Profile:
    ordered_layers = tuple((key, tuple(settings[key])) for key in sorted(settings))
    [first_layer, *other_layers] = ordered_layers
    if all(layer_settings == first_layer[1] for _, layer_settings in other_layers):
        return (((-1, "", 0), first_layer[1]),)
    return ordered_layers


def _rows(profile: Profile, names: Mapping[LayerKey, str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each run of consecutive layers with the same settings."""
    for settings, run in groupby(profile, key=lambda entry: entry[1]):
        keys = [key for key, _ in run]
        yield {
            "layers": [names[key] for key in keys if key in names] or None,
            "settings": [_as_json(setting) for setting in settings],
        }


def _as_json(setting: Setting) -> dict[str, Any]:
    return {
        "method": setting.method,
        "parameters": dict(setting.parameters),
        "models": [
            {"model": model.model, "base": model.base, "parameters": dict(model.parameters)}
            for model in setting.models
        ],
    }
