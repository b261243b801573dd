"""adapter_config.json of a combined adapter, whose base model is not opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resumerge.combination.adapter import AdapterChanges, MatricesKind
from resumerge.combination.modules import ChangedModules
from resumerge.sizes import some

BASE_MODEL = "base_model_name_or_path"

_MISFIT = "; adapters of different models do not fit each other"

_CHOOSE_LAYERS = ("layers_to_transform", "layers_pattern", "exclude_modules")
"""The options that exclude some of the modules that target_modules names."""


def adapter_config(
    adapters: Sequence[AdapterChanges],
    modules: ChangedModules,
    ranks: Mapping[str, int],
    saved: Sequence[str],
) -> dict[str, Any]:
    """Return an adapter_config.json. All scales are 1: alphas are the ranks.

    Args:
        adapters: the adapters to combine, in the recipe's order; the first one that states the task
            or the base model decides it.
        modules: the modules that at least one of the adapters changes.
        ranks: the rank of each of these modules; parameters have the highest rank of all.
        saved: the names of the modules that the adapter stores whole.
    """
    rank = max(ranks.values(), default=1)
    kinds = {module.name: module.first.kind for module in modules.modules}
    other_ranks = {
        name: module_rank
        for name, module_rank in sorted(ranks.items(), key=lambda item: -len(item[0]))
        if module_rank != rank and kinds[name] is not MatricesKind.PARAMETER
    }
    parameters = dict.fromkeys(end for adapter in adapters for end in adapter.settings.parameters)
    return {
        "peft_type": "LORA",
        "task_type": next(iter(_stated(adapters, "task_type")), None),
        "base_model_name_or_path": next(iter(_stated(adapters, "base_model_name_or_path")), None),
        "r": rank,
        "lora_alpha": rank,
        "rank_pattern": other_ranks,
        "alpha_pattern": other_ranks,
        "target_modules": _targets(adapters, modules),
        **({"target_parameters": list(parameters)} if parameters else {}),
        "modules_to_save": list(saved) or None,
        "bias": adapters[0].settings.bias if any(adapter.whole for adapter in adapters) else "none",
        "lora_dropout": 0.0,
        "use_rslora": False,
        "fan_in_fan_out": any(adapter.settings.fan_in_fan_out for adapter in adapters),
        "inference_mode": True,
    }


def notes_on_configs(adapters: Sequence[AdapterChanges]) -> Iterator[str]:
    """Yield a note on each setting that differs between adapters, with the result's value."""
    for key in (BASE_MODEL, "task_type"):
        values = _stated(adapters, key)
        if len(values) > 1:
            yield (
                f"the adapters have different values of {key}: {some(list(values), most=5)}; the "
                f"result has the first{_MISFIT if key == BASE_MODEL else ''}"
            )


def _stated(adapters: Sequence[AdapterChanges], key: str) -> dict[str, None]:
    values = (adapter.source.config.get(key) for adapter in adapters)
    return dict.fromkeys(value for value in values if isinstance(value, str) and value)


def _targets(adapters: Sequence[AdapterChanges], modules: ChangedModules) -> list[str]:
    """Return the names by which peft finds the modules.

    An adapter's own target_modules find the same modules on its base model as in training, and are
    reused if they name all its modules. If they are not a list, or other options exclude layers,
    the modules' full names are used.
    """
    targets: dict[str, None] = {}
    for place, adapter in enumerate(adapters):
        target_modules: list[str] = adapter.source.config.get("target_modules") or []
        is_plain = isinstance(target_modules, list) and all(
            isinstance(name, str) for name in target_modules
        )
        chooses_layers = any(adapter.source.config.get(key) for key in _CHOOSE_LAYERS)
        module_names = [
            module.name
            for module in modules.modules
            if place in module.matrices and module.first.kind is not MatricesKind.PARAMETER
        ]
        if is_plain and not chooses_layers and not modules.spelled[place]:
            name_ends = tuple(f".{name}" for name in target_modules)
            finds_all_modules = all(f".{name}".endswith(name_ends) for name in module_names)
            targets |= dict.fromkeys(
                target_modules if finds_all_modules and module_names else module_names
            )
        else:
            targets |= dict.fromkeys(module_names)
    return sorted(targets)
