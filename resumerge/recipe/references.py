"""Model references: which text names a folder, which a Hub repo, and at what revision."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.types import ModelRef

_REPO_ID = re.compile(r"(?!.*(--|\.\.))(?=.{1,96}$)[\w.-]+(/[\w.-]+)?", re.ASCII)
_HUB = "https://huggingface.co/"
_FIX = "Write 'org/name', 'org/name@revision' or the path of a folder, and '+adapter' after it"


def is_local(name: str) -> bool:
    """Whether a name can only be a path: it begins like one, or is that of something there."""
    return name.startswith(("./", "../", "/", "~")) or name in (".", "..") or _exists(name)


def read_reference(value: object) -> ModelRef:
    """A model reference from its YAML value.

    ``org/name``, ``org/name@revision`` or a folder, relative to the working directory as in
    mergekit. Unlike there, a folder that exists may have ``@`` or ``+`` in its name. A folder has
    no revisions: ``folder@revision`` names the folder, as in mergekit. ``model+adapter`` is a model
    with a LoRA adapter, each named in one of these ways. mergekit's spelled-out form
    ``{model: {path: org/name, revision: abc}, lora: {path: org/adapter}}`` is read too.

    Raises:
        Unfit: anything else.
    """
    if isinstance(value, Mapping):
        return _spelled_out(value)
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue(
            "This names no model",
            expected="the name of a model, as text",
            found="nothing" if value is None else repr(value),
            fix=_FIX,
        )
    return _from_text(value.strip())


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # longer than a path can be, or not ours to look at
        return False


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _from_text(text: str) -> ModelRef:
    if _is_folder(text):
        return ModelRef(text, text)
    if text.startswith(_HUB):
        raise InvalidValue(
            "A model is named without the address of the Hub",
            expected="org/name",
            found=text,
            fix=f"Write '{text.removeprefix(_HUB)}'",
        )
    if "+" in text:
        return _with_adapter(text)
    name, _, revision = text.partition("@")
    no_revision = "@" in text and not revision
    if is_local(name) and not no_revision:
        return ModelRef(text, name if _exists(name) else text)
    if not _REPO_ID.fullmatch(name) or no_revision:
        raise InvalidValue(
            f"'{text}' is neither a folder nor the name of a model on the Hub",
            expected="a folder that exists, or org/name with letters, digits, '-', '_' and '.'",
            found=text,
            fix=_FIX,
        )
    return ModelRef(text, name, revision or None)


def _with_adapter(text: str) -> ModelRef:
    """``model+adapter``, divided at the first ``+`` that leaves a name, or a folder, before it."""
    parts = text.split("+")
    cuts = [k for k in range(1, len(parts)) if _is_folder("+".join(parts[:k]))] or [1]
    base, lora = "+".join(parts[: cuts[0]]), "+".join(parts[cuts[0] :])
    if not base or not lora or ("+" in lora and not _is_folder(lora)):
        raise InvalidValue(
            "A model takes one LoRA adapter",
            expected="model+adapter",
            found=text,
            fix="Name one model and one adapter; adapters on top of each other are merged "
            "one by one",
        )
    return _joined(_from_text(base), _from_text(lora), text)


def _joined(base: ModelRef, lora: ModelRef, text: str) -> ModelRef:
    return ModelRef(text, base.name, base.revision, lora)


def _spelled_out(value: Mapping[Any, Any]) -> ModelRef:
    base, lora = value.get("model"), value.get("lora")
    if base is not None and not (set(value) - {"model", "lora", "override_architecture"}):
        model = _spelled_part(base)
        if lora is None:
            return model
        adapter = _spelled_part(lora)
        if model.lora is None and adapter.lora is None:
            return _joined(model, adapter, f"{model.text}+{adapter.text}")
    raise _unreadable(value)


def _spelled_part(value: object) -> ModelRef:
    if isinstance(value, str):
        return read_reference(value)
    if (
        isinstance(value, Mapping)
        and isinstance(value.get("path"), str)
        and not (set(value) - {"path", "revision"})
        and isinstance(value.get("revision"), str | None)
    ):
        revision = value.get("revision")
        return _from_text(f"{value['path']}@{revision}" if revision else value["path"])
    raise _unreadable(value)


def _unreadable(value: object) -> InvalidValue:
    keys = ", ".join(map(str, value)) if isinstance(value, Mapping) else ""
    return InvalidValue(
        "This mapping names no model",
        expected="text, or {model: {path: org/name, revision: main}}",
        found=f"a mapping with the keys {keys}" if keys else repr(value)[:60],
        fix=_FIX,
    )
