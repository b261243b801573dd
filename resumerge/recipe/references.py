"""The reader of model references, with or without an adapter.

A reference names a folder or a file, a Hub repo at a revision, or a place in a bucket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.buckets.address import (
    EXAMPLES,
    SECRETS_FIX,
    is_bucket,
    scheme_of,
    split_address,
)
from resumerge.errors import InputError
from resumerge.printable import without_secrets
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.types import ModelRef

_REPO_ID = re.compile(r"(?!.*(--|\.\.))(?=.{1,96}$)[\w.-]+(/[\w.-]+)?", re.ASCII)
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")
"""The suffixes that identify one weight file of a repo or a bucket.

A test checks that they equal the suffixes of `FORMATS` (`sources/formats/registry.py`).
"""

_SUFFIX = "|".join(map(re.escape, WEIGHT_SUFFIXES))

_REPO_FILE = re.compile(rf"([\w.-]+/[\w.-]+)/(.+(?:{_SUFFIX}))", re.ASCII)
"""The form ``org/name/FILE`` of one weight file of a repo."""

_WEIGHTS = re.compile(rf"(.+)/([^/]+(?:{_SUFFIX}))")
"""The form of a weight file's address in a bucket; the groups are its folder and its name."""

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

HUB = "https://huggingface.co/"
"""The prefix of every page's address on the Hub."""

_FIX = "Write 'org/name', 'org/name@revision' or the path of a folder or a weight file, and "
_FIX += "'+adapter' after it; models in buckets are 's3://bucket/prefix'"

_ADDRESS_FIX = "Copy the model to a folder, mount it as one, or to a bucket that speaks S3's "
_ADDRESS_FIX += "protocol (AWS_ENDPOINT_URL leads to the server)"
_FIXES = {
    "hf": "Write org/name for a repo; a storage bucket is 's3://NAME/prefix', with "
    "AWS_ENDPOINT_URL=https://s3.hf.co/ORG",
}
"""The advice on addresses that cannot be read, by scheme; `_ADDRESS_FIX` is for other schemes."""


def is_local(name: str) -> bool:
    """Return whether a name is a path.

    A name is a path if it begins like one, or if a file or folder of that name exists.
    """
    is_path = name.startswith(("./", "../", "/", "~")) or name in (".", "..")
    return is_path or (not is_bucket(name) and _exists(name))


def read_reference(value: object) -> ModelRef:
    """Return a model reference from its YAML value.

    The forms of a model are ``org/name``, ``org/name@revision``, and a folder, relative to the
    working directory as in mergekit. A folder has no revisions: ``folder@revision`` names the
    folder, as in mergekit. Unlike in mergekit, the name of a folder that exists may contain ``@``
    or ``+``. The form of a weight file is its path, or ``org/name/FILE`` in a repo. A model or a
    weight file in a bucket has an address like ``s3://bucket/…``.

    ``model+adapter`` is a model with a LoRA adapter, each in one of these forms. mergekit's mapping
    ``{model: {path: org/name, revision: abc}, lora: {path: org/adapter}}`` is accepted, too.

    Raises:
        InvalidValue: the value has none of these forms.
    """
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue(
            "This is not the name of a model",
            expected="the name of a model, as text",
            found="nothing" if value is None else repr(value),
            fix=_FIX,
        )
    return _from_text(value.strip())


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # not a possible path, or no permission
        return False


def _from_text(text: str) -> ModelRef:
    if not is_bucket(text) and _exists(text):
        return ModelRef(text, text)
    if text.startswith(HUB):
        raise InvalidValue(
            "A model is named by org/name, not by a Hub URL",
            expected="org/name",
            found=text,
            fix=_name_on_the_hub(text.removeprefix(HUB)),
        )
    masked_text = without_secrets(text)
    is_in_bucket = any(f"{scheme}://" in text.lower() for scheme in EXAMPLES)
    # Secrets are checked before the reference is split at "+", which a password may contain.
    if masked_text != text and is_in_bucket:
        raise InvalidValue(
            "This is not the address of a place in a bucket",
            expected=EXAMPLES.get(scheme_of(text).lower(), EXAMPLES["s3"]),
            found=masked_text,
            fix=SECRETS_FIX[0].upper() + SECRETS_FIX[1:],
        )
    if "+" in text:
        return _with_adapter(text)
    if _ADDRESS.match(text):
        return _in_bucket(text)
    name, _, revision = text.partition("@")
    lacks_revision = "@" in text and not revision
    if is_local(name) and not lacks_revision:
        return ModelRef(text, name if _exists(name) else text)
    repo_match = _REPO_FILE.fullmatch(name)
    repo, file = repo_match.groups() if repo_match else (name, "")
    is_inside_repo = not {".", ".."} & set(file.split("/"))
    if not _REPO_ID.fullmatch(repo) or lacks_revision or not is_inside_repo:
        raise InvalidValue(
            f"'{text}' is neither a folder nor the name of a model on the Hub",
            expected="a folder or a weight file that exists, or org/name with letters, digits, "
            "'-', '_' and '.'",
            found=text,
            fix=f"Name the model that {name} was made from: such files are not read"
            if name.endswith(".h5")
            else _FIX,
        )
    return ModelRef(text, repo, revision or None, file=file)


def _name_on_the_hub(path: str) -> str:
    """Return advice with the reference to use for a page on the Hub.

    Args:
        path: the page's address without `HUB`.
    """
    owner, _, repo_path = re.split("[?#]", path)[0].strip("/").partition("/")
    name, _, page = repo_path.partition("/")
    # `page` is `tree`, `blob` or `resolve`, and the revision.
    _, _, revision_and_file = page.partition("/")
    revision, _, file = revision_and_file.partition("/")
    revision_suffix = f"@{revision}" if revision not in ("", "main") else ""
    repo = f"{owner}/{name}" if name else owner
    file_advice = f"; '{repo}/{file}{revision_suffix}' is this weight file alone"
    is_weights = _REPO_FILE.fullmatch(f"{repo}/{file}") is not None
    return f"Write '{repo}{revision_suffix}'" + (file_advice if is_weights else "")


def _in_bucket(text: str) -> ModelRef:
    """Return the reference to a folder or a weight file in a bucket, from its address."""
    if not is_bucket(text):
        scheme, _, bucket_path = text.partition("://")
        lower_scheme = scheme.lower()
        if lower_scheme in EXAMPLES:
            raise InvalidValue(
                "An address begins with small letters",
                expected=EXAMPLES[lower_scheme],
                found=text,
                fix=f"{lower_scheme}://{bucket_path}",
            )
        raise InvalidValue(
            "Models are not read from such addresses",
            expected=f"{', '.join(EXAMPLES.values())}, a folder, or org/name",
            found=f"an address that begins with {scheme}://",
            fix=_FIXES.get(scheme, _ADDRESS_FIX),
        )
    try:
        split_address(text)
    except InputError as error:
        [problem] = error.problems
        example = EXAMPLES[scheme_of(text)]
        raise InvalidValue(
            problem.what,
            expected=f"{example}, or {example}/model.safetensors",
            found=problem.where,
            fix=problem.fix[0].upper() + problem.fix[1:],
        ) from None
    address = text.removesuffix("/")
    file_match = _WEIGHTS.fullmatch(address)
    if file_match and not file_match[1].endswith(":/"):
        return ModelRef(text, file_match[1], file=file_match[2])
    return ModelRef(text, address)


def _with_adapter(text: str) -> ModelRef:
    """Return the reference to a model with an adapter, from the text ``model+adapter``.

    The text is split at the first ``+`` whose left side is an existing path. Without such a path,
    it is split at the first ``+``. Spaces around that ``+`` are ignored.
    """
    parts = text.split("+")
    cut_points = [k for k in range(1, len(parts)) if _exists("+".join(parts[:k]).strip())] or [1]
    base, lora = "+".join(parts[: cut_points[0]]).strip(), "+".join(parts[cut_points[0] :]).strip()
    if not base or not lora:
        raise InvalidValue(
            f"There is no {'adapter after' if base else 'model before'} the plus",
            expected="model+adapter",
            found=without_secrets(text),
            fix="Name both; or leave the plus out, to name a model alone",
        )
    if "+" in lora and not _exists(lora):
        raise InvalidValue(
            "A model can have only one LoRA adapter",
            expected="model+adapter",
            found=without_secrets(text),
            fix="Name one model and one adapter; to apply several adapters, merge them one by one",
        )
    return _adapted(_from_text(base), _from_text(lora), text)


def _adapted(base: ModelRef, lora: ModelRef, text: str) -> ModelRef:
    return ModelRef(text, base.name, base.revision, lora, base.file)


def _from_mapping(value: Mapping[Any, Any]) -> ModelRef:
    base, lora = value.get("model"), value.get("lora")
    if base is not None and not (set(value) - {"model", "lora", "override_architecture"}):
        model = _from_mapped_part(base)
        if lora is None:
            return model
        adapter = _from_mapped_part(lora)
        if model.lora is None and adapter.lora is None:
            return _adapted(model, adapter, f"{model.text}+{adapter.text}")
    raise _invalid_mapping(value)


def _from_mapped_part(value: object) -> ModelRef:
    if isinstance(value, str):
        return read_reference(value)
    if (
        isinstance(value, Mapping)
        and isinstance(value.get("path"), str)
        and not (set(value) - {"path", "revision"})
        and isinstance(value.get("revision"), str | None)
    ):
        revision = value.get("revision")
        if revision and _ADDRESS.match(value["path"]):
            raise InvalidValue(
                "A model in a bucket has no revisions",
                expected="its address alone",
                found=f"revision: {revision}",
                fix="Leave 'revision' out",
            )
        return _from_text(f"{value['path']}@{revision}" if revision else value["path"])
    raise _invalid_mapping(value)


def _invalid_mapping(value: object) -> InvalidValue:
    keys = ", ".join(map(str, value)) if isinstance(value, Mapping) else ""
    return InvalidValue(
        "This mapping is not a model reference",
        expected="text, or {model: {path: org/name, revision: main}}",
        found=f"a mapping with the keys {keys}" if keys else repr(value)[:60],
        fix=_FIX,
    )
