"""Companions: the files beside the weights, such as tokenizer, configs, chat templates and code.

They are recognised by their names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from resumerge.sources.pipelines import PIPELINE

LARGEST = 100_000_000
"""The largest companion, in bytes. A larger file is taken as data."""

NEEDED_FOLDERS = re.compile(r"\d+_\w+|additional_chat_templates")
"""The names of folders whose files are needed to load a model.

These folders hold modules of sentence-transformers (``1_Pooling``, ``2_Dense``) and chat templates.
Other folders hold copies of the model in other formats, or its history.
"""

_CONFIGS = re.compile(
    r"config\.json|generation_config\.json"
    r"|((video|image|audio)_)?(pre)?processor_config\.json|audio_tokenizer_config\.json"
    r"|modules\.json|sentence_[\w-]+_config\.json|config_sentence_transformers\.json"
    r"|router_config\.json"
)
"""The names of configs that transformers and sentence-transformers read."""

_OF_TOKENIZERS = re.compile(
    r"(tokenizer|added_tokens|special_tokens_map|vocab|merges|chat_template|spiece|sentencepiece)"
    r"[\w.]*\.(json|jinja|txt|model|spm|v\d+|bpe|tiktoken|vocab)|.+\.(model|spm|bpe|tiktoken|vocab)"
    r"|vocab-(src|tgt)\.json|(entity|target)_vocab\.json|word_(shape|pronunciation)\.json"
    r"|(normalizer|emoji|byte_maps|encoder|tekken)\.json|dict\.txt|bpe\.codes"
    r"|prophetnet\.tokenizer|additional_chat_templates/[^/]+\.jinja"
)
"""The names of tokenizer files.

The first two lines cover most tokenizers. The other lines have names that single classes of
transformers use, and additional chat templates, which transformers loads with the tokenizer.
"""

_OF_SCHEDULERS = re.compile(r"scheduler_config\.json")

_CODE = re.compile(r"\w+\.py")
"""The names of the model's own code: modules that ``auto_map`` names, and their imports."""

_TERMS = re.compile(r"(licen[cs]e|notice|copying|use_policy)(\.txt|\.md)?", re.IGNORECASE)
"""The names of licences and terms of use, which must accompany a copy of the model."""


def companion_files(sizes: Mapping[str, int], components: Collection[str] = ()) -> list[str]:
    """Choose the companion files of a model from a listing, by name.

    Companions are at the top level, in `NEEDED_FOLDERS` (``1_Pooling/config.json``), or in a
    component's folder. All other files are left out: the user may not know that they exist, and
    could publish them with the result.

    Args:
        sizes: the size of each file in bytes, by its name with ``/`` between folders.
        components: the folders of a pipeline's components.

    Returns:
        The chosen names, sorted; they include config.json if the model has one.
    """
    small_files = (name for name, size in sizes.items() if size <= LARGEST)
    return sorted(name for name in small_files if _belongs(name) or _of_component(name, components))


def folder_companions(folder: Path, components: Collection[str] = ()) -> list[str]:
    """Return the companion files of a local folder, except the `outward_links`."""
    return [name for name in _by_name(folder, components) if not _leads_out(folder, name)]


def outward_links(folder: Path, components: Collection[str] = ()) -> list[str]:
    """Return the files with a companion's name that link to files outside the folder.

    In the cache of huggingface_hub, links from a snapshot to the blobs of its repo are not counted.
    """
    return [name for name in _by_name(folder, components) if _leads_out(folder, name)]


def oversized_tokenizer_files(folder: Path) -> list[str]:
    """Return the files of the tokenizer that are larger than `LARGEST`, sorted."""
    sizes = _sizes(folder)
    return sorted(n for n, size in sizes.items() if size > LARGEST and is_tokenizer_file(n))


def _by_name(folder: Path, components: Collection[str]) -> list[str]:
    return companion_files(_sizes(folder), components)


def _sizes(folder: Path) -> dict[str, int]:
    paths = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


def _leads_out(folder: Path, name: str) -> bool:
    home = folder.resolve()
    target = (home / name).resolve()
    if target.is_relative_to(home):
        return False
    repo = home.parents[1] if home.parent.name == "snapshots" else None
    return repo is None or not target.is_relative_to(repo / "blobs")


def _belongs(name: str) -> bool:
    path = PurePosixPath(name)
    if path.is_absolute() or "\\" in name or len(path.parts) > 2:
        return False
    if any(part.startswith(".") for part in path.parts):
        return False
    if len(path.parts) == 2:
        if not NEEDED_FOLDERS.fullmatch(path.parts[0]):
            return False
        if path.parts[0] == "additional_chat_templates":
            return path.suffix == ".jinja"
    name_patterns = (_CONFIGS, _OF_TOKENIZERS, _CODE, _TERMS)
    return any(rule.fullmatch(path.name) for rule in name_patterns)


def _of_component(name: str, components: Collection[str]) -> bool:
    """Return whether a file belongs to a pipeline: its index, or a component's file."""
    folder, _, file = name.rpartition("/")
    if not folder:
        return bool(components) and name == PIPELINE
    name_patterns = (_CONFIGS, _OF_TOKENIZERS, _OF_SCHEDULERS, _CODE, _TERMS)
    return folder in components and any(rule.fullmatch(file) for rule in name_patterns)


def is_tokenizer_file(name: str) -> bool:
    """Return whether a file belongs to the tokenizer, by its name."""
    return _OF_TOKENIZERS.fullmatch(name) is not None


def is_chat_template(name: str) -> bool:
    """Return whether a tokenizer file contains chat templates alone, by its name."""
    return "chat_template" in name
