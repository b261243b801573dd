"""sentence-transformers: ``modules.json``, and a folder for each module beside the transformer.

A module with weights (``2_Dense``) is a part of the model: the names of its tensors begin with its
folder's name and a slash. The modules' configs are companions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from resumerge.errors import refuse
from resumerge.foreign_files import read_foreign
from resumerge.sources.companions import NEEDED_FOLDERS
from resumerge.sources.formats.weight_format import Header
from resumerge.sources.index import Weights, read_config
from resumerge.sources.pipelines import Component, component, weights_stem
from resumerge.sources.types import SentenceModules
from resumerge.tensors import Stored

MODULES = "modules.json"
"""The file that makes a folder a model of sentence-transformers: it lists the modules in order."""

_LARGEST = 1 << 20


def module_paths(folder: Path) -> list[tuple[str, str]]:
    """Return the type and the folder of each module; the transformer's folder is empty.

    Raises:
        InputError: modules.json cannot be read, or is not a list of modules with paths.
    """
    try:
        modules = json.loads(read_foreign(folder / MODULES, _LARGEST))
        return [(str(module.get("type", "")), str(module["path"])) for module in modules]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise refuse(
            f"{MODULES} is not readable",
            where=str(folder / MODULES),
            expected='a list like [{"type": "…", "path": "1_Pooling"}]',
            found=str(error)[:100],
            fix="download or save it again",
        ) from None


def read_modules(
    folder: Path,
    files: Collection[str],
    fetch: Callable[[Collection[str]], None],
    read: Callable[[Component], Weights],
) -> tuple[SentenceModules, dict[str, Stored], dict[str, Header]]:
    """Read the modules of a model, and the headers of the modules with weights.

    Args:
        folder: the model's folder, into which `fetch` puts the files that are missing in it.
        files: the names of the model's files.
        fetch: puts small files into the folder.
        read: reads a module's weights.

    Returns:
        (the modules, the tensors of the modules by name, the header of each weight file by name).
    """
    fetch({MODULES})
    modules = module_paths(folder)
    tensors: dict[str, Stored] = {}
    headers: dict[str, Header] = {}
    stems: dict[str, str] = {}
    configs: dict[str, dict[str, Any]] = {}
    for path in (path for _, path in modules if NEEDED_FOLDERS.fullmatch(path)):
        module_contents = component(path, "transformers")
        fetch({module_contents.config} & set(files))
        configs[path] = read_config(folder, module_contents.config)
        if not set(module_contents.weights).isdisjoint(files):
            weights = read(module_contents)
            stems[path] = weights_stem(weights.file)
            tensors |= module_contents.named(weights.tensors)
            headers |= weights.headers
    types = tuple(kind.rpartition(".")[2] for kind, _ in modules)
    return SentenceModules(types, configs, stems), tensors, headers
