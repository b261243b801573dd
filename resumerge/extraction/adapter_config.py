"""adapter_config.json of an extracted adapter."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from resumerge.config_json import class_names

_CAUSAL = re.compile(r"(ForCausalLM|LMHeadModel)$")


def adapter_config(
    base: str,
    config: Mapping[str, Any],
    *,
    ranks: Mapping[str, int],
    parameters: Collection[str],
    saved: Collection[str],
    every: Set[str],
    every_parameter: Set[str],
    biases: bool,
) -> dict[str, Any]:
    """Return an adapter_config.json. All scales are 1: alphas are the ranks.

    Args:
        base: the name by which peft finds the base model.
        config: the base model's config.json, whose first class decides the task.
        ranks: the rank of each module that has matrices, by its name.
        parameters: the names of experts' parameters that have matrices, all of the highest rank.
        saved: the names of the modules that the adapter stores whole.
        every: the names of all modules of the model, also of those that only contain others.
        every_parameter: the names of all parameters that hold experts.
        biases: whether the adapter stores the model's biases.
    """
    modules = ranks.keys() - set(parameters)
    names = class_names(config)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if names and _CAUSAL.search(names[0]) else None,
        "base_model_name_or_path": base,
        **rank_settings(ranks, parameters),
        "target_modules": ends_of(modules, every),
        **({"target_parameters": _ends(parameters, every_parameter)} if parameters else {}),
        "modules_to_save": saved_names(saved, every) or None,
        "bias": "all" if biases else "none",
        "lora_dropout": 0.0,
        "use_rslora": False,
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def rank_settings(ranks: Mapping[str, int], parameters: Collection[str]) -> dict[str, Any]:
    """Return the settings of an adapter_config.json for ranks, and for alphas equal to the ranks.

    peft uses the first pattern that a module's name ends with, so longer names come first.

    Args:
        ranks: the rank of each module that has matrices, by its name.
        parameters: the names of experts' parameters that have matrices, all of the highest rank.
    """
    rank = max(ranks.values(), default=1)
    other_ranks = {
        name: rank_of_module
        for name, rank_of_module in sorted(ranks.items(), key=lambda item: -len(item[0]))
        if rank_of_module != rank and name not in parameters
    }
    return {
        "r": rank,
        "lora_alpha": rank,
        "rank_pattern": other_ranks,
        "alpha_pattern": other_ranks,
    }


def ends_of(chosen: Collection[str], every: Set[str]) -> list[str]:
    """Return names by which peft finds exactly these modules: last words, if these are enough.

    peft chooses each module whose name is one of the returned names, or ends with a dot and one of
    them.
    """
    words_of_others = {name.rpartition(".")[2] for name in every - set(chosen)}
    words = {name: name.rpartition(".")[2] for name in chosen}
    return sorted({name if word in words_of_others else word for name, word in words.items()})


def saved_names(chosen: Collection[str], every: Set[str]) -> list[str]:
    """Return names by which peft saves exactly these modules: last words, if these are enough.

    peft saves each module whose name ends with one of these names, even within a word.
    """
    other_names = every - set(chosen)
    words = {name.rpartition(".")[2] for name in chosen}
    exact_words = {word for word in words if not any(name.endswith(word) for name in other_names)}
    return sorted(
        {
            word_at_end if (word_at_end := name.rpartition(".")[2]) in exact_words else name
            for name in chosen
        }
    )


def _ends(chosen: Iterable[str], every: Set[str]) -> list[str]:
    """Return names by which peft finds exactly these parameters: the last two words, if enough."""
    ends_of_others = {_last_two_parts(name) for name in every - set(chosen)}
    ends = {name: _last_two_parts(name) for name in chosen}
    return sorted({name if end in ends_of_others else end for name, end in ends.items()})


def _last_two_parts(name: str) -> str:
    return ".".join(name.split(".")[-2:])
