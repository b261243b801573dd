"""Notes on what a recipe says without effect, or with an effect that may surprise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.recipe.paths import descend
from resumerge.recipe.types import Conditional, Recipe

_IGNORED = {
    "input_model_parameters": "mergekit ignores it; write each model's parameters below its name",
    "name": "the output folder names the merge",
    "int8_mask": "masks take almost no memory, and mergekit ignores this key here too",
    "out_shard_size": "give --shard-size to 'resumerge run' instead",
    "random_seed": "give --seed to 'resumerge run' instead",
    "cuda": "give --device to 'resumerge run' instead",
    "low_cpu_memory": "memory is bounded anyway",
    "lazy_unpickle": "files are never loaded whole anyway",
    "copy_tokenizer": "the tokenizer is copied anyway",
    "trust_remote_code": "a model's own code is never run",
    "allow_crimes": "architectures are not compared",
}
IGNORED_KEYS = frozenset(_IGNORED)
"""mergekit's options at the top level of a recipe: accepted, without effect."""


def notes_on(recipe: Recipe, document: Mapping[Any, Any]) -> Iterator[str]:
    """One sentence for each.

    Args:
        document: the YAML that the recipe was read from.
    """
    for name, why in _IGNORED.items():
        if name in document:
            yield f"{name} has no effect: {why}"
    if _contains(document, "residual_weight"):
        yield "residual_weight has no effect: mergekit reads it and does nothing with it"
    if _contains(document, "override_architecture"):
        yield "override_architecture has no effect: layers are found by the names of the tensors"
    for ref in recipe.models:
        if ref.revision is None and ref.text != ref.name:
            yield f"{ref} is a folder: its revision is ignored"
    for path, parameters in recipe.parameter_scopes():
        for name, setting in parameters.items():
            if _has_nan(setting):
                where = descend(path, (name,))
                yield f"{where} is NaN: every tensor that it applies to becomes NaN"


def _contains(value: object, key: str) -> bool:
    """Whether a YAML value has a key at any depth."""
    if isinstance(value, Mapping):
        return key in value or any(_contains(item, key) for item in value.values())
    return isinstance(value, list) and any(_contains(item, key) for item in value)


def _has_nan(setting: object) -> bool:
    if isinstance(setting, tuple):
        return any(_has_nan(entry) for entry in setting)
    if isinstance(setting, Conditional):
        return _has_nan(setting.value)
    return isinstance(setting, float) and math.isnan(setting)
