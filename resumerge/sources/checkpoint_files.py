"""The weight files of a model, and the shards among them by the numbers in their names.

For a folder or repo without a config.json, this module chooses the weight files. For all files, it
removes prefixes from tensor names and describes other content.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from resumerge.errors import InputError, refuse
from resumerge.sizes import SHOWN, some
from resumerge.sources.formats.registry import FORMATS, is_readable
from resumerge.sources.formats.weight_format import Header
from resumerge.tensors import Tensor

TensorKind = TypeVar("TensorKind", bound=Tensor)

MODULE = "module."
"""The prefix that torch's DataParallel adds to every tensor name."""

_SHARD = re.compile(r"(.+)-(\d{1,6})-of-(\d{1,6})(\.[\w.]+)")

_STATE_OF_TRAINING = re.compile(
    r"(optimizer|scheduler|scaler|training_args|random_states_\d+|rng_state.*|.*optim_states)\.\w+"
)
"""The names of files with training state, which trainers save in the formats of weights."""


def checkpoint_files(names: Iterable[str]) -> list[str]:
    """Return the weight files at the top level of a folder whose files may have any name.

    All of them have one format: the most preferred format of which the folder has files.
    """
    weights = weights_in(names)
    files_by_format = (
        [n for n in weights if n.endswith(weight_format.suffixes)] for weight_format in FORMATS
    )
    return next(filter(None, files_by_format), [])


def weights_in(names: Iterable[str], prefix: str = "") -> list[str]:
    """Return the files of one folder that can be read as weights, sorted.

    Args:
        names: the files of all folders.
        prefix: the folder with a slash; empty for the top level.
    """
    names_in_folder = (name for name in names if name.rpartition("/")[0] == prefix.rstrip("/"))
    return sorted(
        name
        for name in names_in_folder
        if is_readable(name) and not _STATE_OF_TRAINING.fullmatch(name.removeprefix(prefix))
    )


def is_shard(name: str) -> bool:
    """Return whether a file has the name of a shard: ``…-00001-of-00003…``."""
    return _SHARD.fullmatch(name) is not None


def shards_with(name: str, names: Iterable[str]) -> list[str]:
    """Return all shards of the model that a shard belongs to, sorted.

    Args:
        name: the shard; if it does not have a shard's name, it is returned alone.
        names: the existing files, which may include other models' shards.
    """
    shard = _SHARD.fullmatch(name)
    if shard is None:
        return [name]
    stem, number, count, ending = shard.groups()
    name_matches = (_SHARD.fullmatch(other_shard) for other_shard in names)
    return sorted(
        {
            name,
            *(
                other_shard[0]
                for other_shard in name_matches
                if other_shard
                and (other_shard[1], len(other_shard[2]), other_shard[3], other_shard[4])
                == (stem, len(number), count, ending)
            ),
        }
    )


def missing_shards(names: Iterable[str]) -> tuple[list[str], int]:
    """Find the missing shards by the numbers in the names of the existing shards.

    Returns:
        (the first `SHOWN` names of missing shards, the number of missing shards).
    """
    groups = defaultdict(set)
    for name in names:
        if shard := _SHARD.fullmatch(name):
            stem, number, count, ending = shard.groups()
            groups[stem, len(number), count, ending].add(int(number))
    first_missing, missing_count = list[str](), 0
    for (stem, width, count, ending), numbers in groups.items():
        first_number = min(1, *numbers)
        expected_numbers = range(first_number, first_number + int(count))
        missing_count += len(expected_numbers) - sum(
            number in expected_numbers for number in numbers
        )
        gaps = (number for number in expected_numbers if number not in numbers)
        for number in islice(gaps, SHOWN - len(first_missing)):
            first_missing.append(f"{stem}-{number:0{width}}-of-{count}{ending}")
    return first_missing, missing_count


def check_shards(names: Iterable[str], where: str) -> None:
    """Check by the numbers in the names of shards that no shard is missing.

    Raises:
        InputError: shards are missing.
    """
    names = list(names)
    first_missing, count = missing_shards(names)
    if first_missing:
        raise refuse(
            "Weight files are missing",
            where=where,
            expected=f"all files that are numbered like {next(filter(is_shard, names))}",
            found=f"no {some(first_missing, count=count)}",
            fix="copy or download the missing files",
        )


def checkpoint_tensors(
    model: str,
    headers: Mapping[str, Header],
    tensors: Mapping[str, TensorKind],
    config: Mapping[str, Any],
) -> tuple[Mapping[str, TensorKind], tuple[str, ...]]:
    """Return the tensors of a model by name, and notes on other content of its files.

    If the config is empty and all names begin with `MODULE`, this prefix is removed from them.

    Args:
        model: the model's name, for the notes.
        headers: the header of each of its files.
        tensors: the tensors of all files, by their names in the files.
        config: the model's config.json.
    """
    left_out = [entry for header in headers.values() for entry in header.left_out]
    notes = []
    if left_out:
        notes.append(f"{model}: left out, because not of the model: {some(left_out)}")
    if not config and tensors and all(name.startswith(MODULE) for name in tensors):
        tensors = {
            (plain_name := name.removeprefix(MODULE)): replace(tensor, name=plain_name)
            for name, tensor in tensors.items()
        }
        notes.append(f"{model}: the names of tensors are read without {MODULE!r} before them")
    return tensors, tuple(notes)


def check_readable(name: str, where: str) -> None:
    """Check by its suffix that a file in a recipe has a format that can be read.

    Args:
        name: the last part of the path of an existing file.
        where: the reference in the recipe, for the message.

    Raises:
        InputError: the format cannot be read.
    """
    if not is_readable(name):
        suffixes = [suffix for weight_format in FORMATS for suffix in weight_format.suffixes]
        raise refuse(
            "This file is not a model that can be read",
            where=where,
            expected=f"a folder, or a weight file: {', '.join(suffixes)}",
            found=name,
            fix="name the folder or repo that the file was made from, or save the model as "
            "safetensors",
        )


def no_such_file(where: str, name: str, there: Iterable[str]) -> InputError:
    """Return the error for a weight file in a recipe that does not exist.

    Args:
        where: the folder or repo, for the message.
        name: the file as the recipe names it: its path, or its name in the repo.
        there: the names of the existing files.
    """
    return refuse(
        "The model's file does not exist",
        where=where,
        expected=name,
        found=", ".join(sorted(filter(is_readable, there))[:8]) or "no weight files",
        fix="check the name; a path is relative to the folder in which the command runs",
    )
