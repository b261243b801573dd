"""Finished models in a mirror: compare them with a recipe, and copy them to this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from resumerge.engine.checks.drift import is_of_recipe
from resumerge.engine.mirror_session.reconcile import fetch_from_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.errors import Reason, Resumable
from resumerge.host.machine import free_bytes
from resumerge.mirror.manifest import Manifest
from resumerge.mirror.retrying import retry_store
from resumerge.options import Options
from resumerge.output.model_files import RECIPE_IN_OUTPUT
from resumerge.output_path import CARD, STAGES, OutputPath
from resumerge.planning.stage_results.kept import names_to_keep
from resumerge.recipe import Recipe
from resumerge.sizes import show_size
from resumerge.storage import Storage

LARGEST_RECIPE = 1 << 24
"""The largest recipe, in bytes, that is read from a mirror."""

PAGE = 4096
"""Bytes of a page. A file takes whole pages on a disk."""


def is_made_of(manifest: Manifest, recipe: Recipe, options: Options, mirror: MirrorSession) -> bool:
    """Return whether a finished model was made of this recipe, with these options.

    The sources are not compared, because a branch may have moved since, and a local model may be a
    copy.
    """
    for wanted_value, value_of_model in (
        (options.seed, manifest.seed),
        (options.shard_size, manifest.shard_size),
    ):
        if wanted_value is not None and wanted_value != value_of_model:
            return False
    keeps_all = options.intermediate_dir is not None
    kept_stages = names_to_keep(recipe, options.keep or (), every=keeps_all)
    stage_folders = [f"{STAGES}/{name}/" for name in kept_stages]
    if not all(any(file.startswith(folder) for file in manifest.files) for folder in stage_folders):
        return False
    nbytes, sha256 = manifest.files.get(RECIPE_IN_OUTPUT, (0, ""))
    if not 0 < nbytes <= LARGEST_RECIPE:
        return False
    recipe_bytes = retry_store(
        mirror.store, lambda: mirror.store.get(RECIPE_IN_OUTPUT, LARGEST_RECIPE)
    )
    if hashlib.sha256(recipe_bytes).hexdigest() != sha256:
        return False
    recipe_text = recipe_bytes.decode(errors="replace")
    return is_of_recipe({"config_text": recipe_text, "config_path": RECIPE_IN_OUTPUT}, recipe)


def fetch_model(
    mirror: MirrorSession, manifest: Manifest, out: OutputPath, storage: Storage
) -> list[str]:
    """Copy a finished model to this machine, config.json last.

    Files that exist here already are kept. If the output is one file, only that file is copied.

    Returns:
        the names of the files that were copied.

    Raises:
        InputError: the mirror cannot be used.
        Resumable: a file is missing or damaged in the mirror, or cannot be read now; or the disk
            here is too small.
    """
    needed_names = sorted(
        _needed_files(manifest, out), key=lambda name: (name == "config.json", name)
    )
    missing_names = [
        name for name in needed_names if not _has(out.folder / name, name, manifest.files[name][0])
    ]
    needed_bytes = sum(-(-manifest.files[name][0] // PAGE) * PAGE for name in missing_names)
    available_bytes = free_bytes(out.folder)
    if available_bytes < needed_bytes:
        raise Resumable(
            Reason.DISK_FULL,
            f"The disk of {out} is too small to copy the model back from the mirror: it needs "
            f"{show_size(needed_bytes)}, and {show_size(available_bytes)} is free. "
            "Free some space, then resume",
        )
    for name in missing_names:
        fetch_from_mirror(
            mirror, name, None if name == CARD else manifest.files[name][1], out.folder, storage
        )
    return missing_names


def fetched_names(manifest: Manifest, out: OutputPath) -> set[str]:
    """Return the names of files that an earlier `fetch_model` may have copied or begun to copy."""
    needed_names, files = _needed_files(manifest, out), manifest.files
    complete_names = {
        name for name in needed_names if _has(out.folder / name, name, files[name][0])
    }
    return complete_names | {name + PARTIAL for name in needed_names}


def _needed_files(manifest: Manifest, out: OutputPath) -> list[str]:
    return [name for name in manifest.files if not out.is_file or name == out.path.name]


def _has(path: Path, name: str, nbytes: int) -> bool:
    return path.is_file() and (path.stat().st_size == nbytes or name == CARD)
