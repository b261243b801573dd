"""Model references: which text names a folder, which a Hub repo, and at what revision."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.recipe.model import ModelRef
from resumerge.recipe.unfit import Unfit

_REPO_ID = re.compile(r"(?!.*(--|\.\.))(?=.{1,96}$)[\w.-]+(/[\w.-]+)?", re.ASCII)
_HUB = "https://huggingface.co/"
_FIX = "Write 'org/name', 'org/name@revision' or the path of a folder"


def is_local(name: str) -> bool:
    """Whether a name can only be a folder's: it begins like a path, or that folder is there."""
    return name.startswith(("./", "../", "/", "~")) or name in (".", "..") or _is_folder(name)


def read_reference(value: object) -> ModelRef:
    """A model reference from its YAML value.

    ``org/name``, ``org/name@revision`` or a folder, relative to the working directory as in
    mergekit. Unlike there, a folder that exists may have ``@`` or ``+`` in its name. A folder has
    no revisions: ``folder@revision`` names the folder, as in mergekit. mergekit's spelled-out form
    ``{model: {path: org/name, revision: abc}}`` is read too.

    Raises:
        Unfit: anything else, and ``model+lora``.
    """
    if isinstance(value, Mapping):
        return _spelled_out(value)
    if not isinstance(value, str) or not value.strip():
        raise Unfit(
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


def _from_text(text: str) -> ModelRef:
    if _is_folder(text):
        return ModelRef(text, text)
    if text.startswith(_HUB):
        raise Unfit(
            "A model is named without the address of the Hub",
            expected="org/name",
            found=text,
            fix=f"Write '{text.removeprefix(_HUB)}'",
        )
    if "+" in text:
        raise _lora(text)
    name, _, revision = text.partition("@")
    if is_local(name):
        return ModelRef(text, name if _is_folder(name) else text)
    if not _REPO_ID.fullmatch(name) or ("@" in text and not revision):
        raise Unfit(
            f"'{text}' is neither a folder nor the name of a model on the Hub",
            expected="a folder that exists, or org/name with letters, digits, '-', '_' and '.'",
            found=text,
            fix=_FIX,
        )
    return ModelRef(text, name, revision or None)


def _spelled_out(value: Mapping[Any, Any]) -> ModelRef:
    if value.get("lora") is not None:
        raise _lora("lora: …")
    inner = value.get("model")
    if inner is not None and not (set(value) - {"model", "lora", "override_architecture"}):
        if isinstance(inner, str):
            return read_reference(inner)
        if (
            isinstance(inner, Mapping)
            and isinstance(inner.get("path"), str)
            and not (set(inner) - {"path", "revision"})
            and isinstance(inner.get("revision"), str | None)
        ):
            revision = inner.get("revision")
            return _from_text(f"{inner['path']}@{revision}" if revision else inner["path"])
    raise Unfit(
        "This mapping names no model",
        expected="text, or {model: {path: org/name, revision: main}}",
        found=f"a mapping with the keys {', '.join(map(str, value)) or '(none)'}",
        fix=_FIX,
    )


def _lora(found: str) -> Unfit:
    return Unfit(
        "LoRA adapters in a recipe are not supported yet",
        expected="a full model",
        found=found,
        fix="Merge the adapter into its model first (peft: merge_and_unload, save_pretrained) "
        "and name that folder here",
    )
