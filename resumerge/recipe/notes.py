"""The notes on settings of a recipe that have no effect, or a surprising effect."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml

from resumerge.buckets.address import is_bucket
from resumerge.recipe.schema.settings import FILTERED, unread_keys
from resumerge.recipe.types import Conditional, Recipe
from resumerge.recipe.yaml_lines import child, descend

_IGNORED = {
    "input_model_parameters": "mergekit ignores it; write each model's parameters below its name",
    "name": "the merge is named after its output folder",
    "int8_mask": "masks take almost no memory, and mergekit ignores this key here too",
    "out_shard_size": "give --shard-size to 'resumerge run' instead",
    "random_seed": "give --seed to 'resumerge run' instead",
    "cuda": "give --device to 'resumerge run' instead",
    "low_cpu_memory": "the memory of a merge is always limited (see --memory)",
    "lazy_unpickle": "files are never loaded whole",
    "copy_tokenizer": "the tokenizer is always copied",
    "trust_remote_code": "a model's own code is never run",
    "allow_crimes": "architectures are not compared",
}
_NUMBERS = ("parameters", "layer_range", "pad_to_multiple_of", "token_id")
"""The keys whose values are read as numbers, at any depth."""

_RESOLVER = yaml.resolver.Resolver()
_NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")

IGNORED_KEYS = frozenset(_IGNORED)
"""The options of mergekit that are accepted at the top level of a recipe, but have no effect."""


def notes_on(
    recipe: Recipe, document: Mapping[Any, Any], ignored: Collection[str]
) -> Iterator[str]:
    """Yield a sentence on each setting that has no effect, or a surprising effect.

    Args:
        recipe: the recipe that the document was read as, which has no problems.
        document: the YAML data that the recipe was read from.
        ignored: the keys of `IGNORED_KEYS` that were removed from the document.
    """
    for name, reason in _IGNORED.items():
        if name in ignored and name in document:
            yield f"{name} has no effect: {reason}"
    if _contains(document, "residual_weight"):
        yield "residual_weight has no effect: mergekit reads it and does nothing with it"
    if _contains(document, "override_architecture"):
        yield "override_architecture has no effect: layers are found by the names of the tensors"
    for path, text in _quoted(document, ""):
        yield f"{path} is in quotes: {text!r} counts as the number"
    for path, entry in _filtered(document, ""):
        for name in unread_keys(entry):
            yield f"the key {name!r} has no effect, as in mergekit ({descend(path, (str(name),))})"
    for part in (part for ref in recipe.models for part in ref.parts):
        is_folder = part.revision is None and not part.file and not is_bucket(part.name)
        if is_folder and part.text != part.name:
            yield f"{part} is a folder: its revision is ignored"
    for path, parameters in recipe.parameter_scopes():
        for name, setting in parameters.items():
            if _has_nan(setting):
                setting_path = descend(path, (name,))
                yield f"{setting_path} is NaN: every tensor that it applies to becomes NaN"


def _quoted(value: object, path: str, *, read: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (YAML path, text) for each text that YAML would read as a number without its quotes.

    Args:
        value: the YAML value, whose entries are searched at any depth.
        path: the YAML path of `value`; empty for a whole document.
        read: whether the recipe expects a number at this path.
    """
    if isinstance(value, str):
        if read and _tag(value) in _NUMBER_TAGS:
            yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            is_number = key in _NUMBERS or (read and key != "filter")
            yield from _quoted(item, child(path, str(key)), read=is_number)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _quoted(item, child(path, index), read=read)


def _tag(text: str) -> object:
    """Return the YAML tag that a text would have without quotes."""
    return _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call, unused-ignore]


def _filtered(value: object, path: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Yield (YAML path, entry) for each filtered value inside a YAML value."""
    if isinstance(value, Mapping):
        if value.keys() >= {*FILTERED}:
            yield path, value
        for key, item in value.items():
            yield from _filtered(item, child(path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _filtered(item, child(path, index))


def _contains(value: object, key: str) -> bool:
    """Return whether a YAML value has a key at any depth."""
    if isinstance(value, Mapping):
        return key in value or any(_contains(item, key) for item in value.values())
    return isinstance(value, list) and any(_contains(item, key) for item in value)


def _has_nan(setting: object) -> bool:
    if isinstance(setting, tuple):
        return any(_has_nan(entry) for entry in setting)
    if isinstance(setting, Conditional):
        return _has_nan(setting.value)
    return isinstance(setting, float) and math.isnan(setting)
