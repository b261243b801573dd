"""The difference between two fingerprints, as text: the changes, and the user's options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from resumerge.ledger.validators import SOURCE
from resumerge.planning import changes
from resumerge.planning.fingerprint import CHAT_TEMPLATE, KEPT, LIBRARIES, TOKENIZER, UNSHARED
from resumerge.sources.types import config_digest

RECIPE = "recipe"

_KINDS = {
    "recipe": ("The recipe", "undo the change and resume, or continue with the recipe as it was"),
    "source": ("A source", "restore the file as it was, and resume"),
    "option": ("An option", "leave the option out, and resume"),
    "library": ("A library", "install the version that the run began with, and resume"),
    "program": ("The program", "resume with the version that created the run"),
}
"""For each kind of difference, its subject in a sentence, and the user's remedy."""


def describe_differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the differences between the parts of two fingerprints.

    Returns:
        the kinds of the differences (``recipe``, ``source``, ``option``, ``library``, ``program``),
        and a line for each difference.
    """
    kinds, difference_lines = [], []
    for key in sorted(before.keys() | after.keys()):
        value_before, value_now = before.get(key), after.get(key)
        if key == RECIPE:
            differences = changes(_as_written(value_before or {}), _as_written(value_now or {}))
        else:
            differences = changes({key: value_before}, {key: value_now})
        if not differences:
            continue
        kinds.append(_kind(key))
        difference_lines += (
            _files(key, value_before, value_now)
            if key.startswith(SOURCE) and value_before and value_now
            else differences
        )
    return list(dict.fromkeys(kinds)), difference_lines


def headline(kinds: Iterable[str]) -> str:
    """Return one sentence that names the subjects of the changes."""
    subjects = [_KINDS[kind][0] for kind in kinds]
    subject = " and ".join([subjects[0], *(name[0].lower() + name[1:] for name in subjects[1:])])
    return f"{subject} has changed since the run was created"


def advice(kinds: Iterable[str], own_recipe: str, restart: str) -> str:
    """Return the remedy for differences of these kinds.

    Args:
        kinds: the kinds of the differences, each once, as `describe_differences` returns them.
        own_recipe: the command that continues the run with the original recipe.
        restart: the command that starts the run over.
    """
    remedies = [
        _KINDS[kind][1] + (f" (`{own_recipe}`)" if kind == "recipe" else "") for kind in kinds
    ]
    return f"{'; and '.join(remedies)}; or name another output; or start over: `{restart}`"


def _kind(key: str) -> str:
    if key.startswith((SOURCE, TOKENIZER, CHAT_TEMPLATE)):
        return "source"
    if key in ("seed", "shard size", UNSHARED, KEPT):
        return "option"
    if key == LIBRARIES:
        return "library"
    return "recipe" if key == RECIPE else "program"


def _as_written(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the output of `normalized` back to the keys that users write in recipes."""
    written_recipe = dict(recipe)
    for module in written_recipe.pop("modules", ()):
        module_recipe = {"slices": module["slices"], "base_model": recipe["base_model"]}
        module_entry = {**_as_written(module_recipe), "parameters": module["parameters"]}
        del module_entry["base_model"]
        written_recipe[f"modules.{module['name']}"] = module_entry
    for name, stage in written_recipe.pop("stages", {}).items():
        written_recipe[f"stage {name}"] = _as_written(stage)
    slices = written_recipe.pop("slices", [])
    if [slice_["inputs"][0]["layer_range"] for slice_ in slices] == [None]:
        [only_slice] = slices
        base_model = only_slice["base_model"] or recipe["base_model"]
        models = only_slice["inputs"]
        if models[-1] == {"model": base_model, "layer_range": None, "parameters": {}}:
            models = models[:-1]  # the base model, which every method receives
        return {**written_recipe, "models": models}
    if slices:
        written_recipe["slices"] = [
            {"sources": slice_["inputs"]} | {k: v for k, v in slice_.items() if k != "inputs"}
            for slice_ in slices
        ]
    return written_recipe


def _files(key: str, was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a line for each file of a source that differs, with the kind of difference."""
    difference_lines = []
    model = key.removeprefix(SOURCE).rstrip("/")
    old_files, new_files = was.get("files", {}), now.get("files", {})
    for name in sorted(old_files.keys() | new_files.keys()):
        path = f"{model}/{name}"
        if name not in new_files:
            difference_lines.append(f"{path} is missing")
        elif name not in old_files:
            difference_lines.append(f"{path} is new")
        elif old_files[name] != new_files[name]:
            difference_lines.append(f"{path} has {_difference(old_files[name], new_files[name])}")
    if was.get("config") != now.get("config"):
        is_gone = now.get("config") == config_digest({})
        config_change = "is missing" if is_gone else "has different contents"
        difference_lines.append(f"{model}/config.json {config_change}")
    return difference_lines or changes({key: was}, {key: now})


def _difference(was: dict[str, Any], now: dict[str, Any]) -> str:
    if was.get("size") != now.get("size"):
        return f"{now.get('size')} bytes instead of {was.get('size')}"
    if was.get("header") != now.get("header"):
        return "a different header"
    return "different contents"
