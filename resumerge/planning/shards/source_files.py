"""Packs an output that is made from one model (``model+adapter``, or a copy) as in its files.

Each file of the model becomes a shard of the same name with the same tensors. If all tensors of a
file keep dtype and shape, the shard begins with the first bytes of the file, and every tensor has
the same offset as in the file. A shard whose tensors are all copied therefore equals the file, byte
by byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from resumerge.output_path import STEM, is_shard_name
from resumerge.planning.plan import Shard, SourceFileKey, Unit
from resumerge.planning.shards.packing import add_packed, add_shard, whole_tensors
from resumerge.recipe import Recipe
from resumerge.sources.formats.safetensors import METADATA
from resumerge.sources.types import Source
from resumerge.tensors import Stored
from resumerge.tensors.target import Target

COPYING = "passthrough"
"""The method that copies the tensors of a single model."""


class _Entry(NamedTuple):
    """A tensor in the header of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _WeightFile:
    """A weight file of the model.

    Args:
        key: the number of the source, and the file's name in it: with ``base/`` in front if the
            source has an adapter.
        name: the file's name in the model's folder.
        first: the bytes of the file before the first tensor.
        entries: the tensors, in the order of their bytes.
    """

    key: SourceFileKey
    name: str
    first: bytes
    entries: tuple[_Entry, ...]

    def in_place(self, tensors: Sequence[list[Target]]) -> list[Target] | None:
        """Return the targets in the order of the file's tensors.

        The result is None if names, dtypes or shapes differ from those in the file.
        """
        targets_by_first_name = {next(iter(targets[0].tensors)): targets for targets in tensors}
        ordered_targets, entries_so_far = list[Target](), list[_Entry]()
        while len(entries_so_far) < len(self.entries):
            targets = targets_by_first_name.get(self.entries[len(entries_so_far)].name)
            if targets is None:
                return None
            ordered_targets += targets
            entries_so_far += (entry for target in targets for entry in _entries(target))
            if tuple(entries_so_far) != self.entries[: len(entries_so_far)]:
                return None
        return ordered_targets if len(ordered_targets) == sum(map(len, tensors)) else None


def pack_as_source(
    recipe: Recipe, source: Source, targets: Sequence[Target]
) -> tuple[tuple[Unit, ...], tuple[Shard, ...]] | None:
    """Pack the tensors of an output that is made from one model as in that model's files.

    A tensor that the files lack, such as a head that an adapter unties, is put into the shard of
    the previous tensor.

    Args:
        recipe: the recipe, which tells whether the output is made from one model.
        source: the reference model; if it has an adapter, the files of the model without it count.
        targets: the output tensors. The targets of one tensor follow each other.

    Returns:
        The units and the shards; None if the output is not made from one model, if loaders do not
        look for the names of the model's files, or if no file keeps the offsets of its tensors.
    """
    files = {file.name: file for file in _files_of(source)} if _is_one_model(recipe) else {}
    file_of_tensor = {
        entry.name: file_name for file_name, file in files.items() for entry in file.entries
    }
    if not files or len(file_of_tensor) < sum(len(file.entries) for file in files.values()):
        return None
    targets_by_file: dict[str, list[list[Target]]] = {file_name: [] for file_name in files}
    file_name = next(iter(files))
    for targets_of_tensor in whole_tensors(targets):
        file_name = file_of_tensor.get(next(iter(targets_of_tensor[0].tensors)), file_name)
        targets_by_file[file_name].append(targets_of_tensor)
    units, shards = list[Unit](), list[Shard]()
    kept_file_count = 0
    for file_name, file in files.items():
        if not targets_by_file[file_name]:
            return None
        ordered_targets = file.in_place(targets_by_file[file_name])
        if ordered_targets is None:
            add_packed(file_name, targets_by_file[file_name], units, shards)
        else:
            copied_file = file.key if _are_copies(file, ordered_targets) else None
            add_shard(file_name, file.first, ordered_targets, units, shards, copied_file)
            kept_file_count += 1
    return (tuple(units), tuple(shards)) if kept_file_count else None


def _is_one_model(recipe: Recipe) -> bool:
    """Return whether every tensor of the output comes from one model, and keeps its name."""
    return (
        recipe.merge_method == COPYING
        and len(recipe.merged_models) == 1
        and recipe.extract_expert is None
        and [(module.name, module.stacked) for module in recipe.modules] == [(None, False)]
    )


def _files_of(source: Source) -> Iterator[_WeightFile]:
    """Yield the weight files of a model, if they are the shards of one model in safetensors.

    For a model with an adapter, the files of the model itself are yielded.
    """
    prefix, model = ("base/", source.base) if source.base else ("", source)
    file_names = sorted(model.files)
    are_shards = all(
        file_name.startswith(STEM) and is_shard_name(file_name) and model.files[file_name].first
        for file_name in file_names
    )
    if source.single or source.components or source.modules or not are_shards:
        return
    for file_name in file_names:
        first_bytes = model.files[file_name].first
        yield _WeightFile(
            (source.number, prefix + file_name), file_name, first_bytes, _entries_of(first_bytes)
        )


def _entries_of(first: bytes) -> tuple[_Entry, ...]:
    """Return the tensors of a validated header, in the order of their bytes."""
    header: Mapping[str, Mapping[str, list[int]]] = json.loads(first[8:])
    entries = ((name, entry) for name, entry in header.items() if name != METADATA)
    ordered_entries = sorted(entries, key=lambda named_entry: named_entry[1]["data_offsets"])
    return tuple(_Entry(name, str(e["dtype"]), tuple(e["shape"])) for name, e in ordered_entries)


def _entries(target: Target) -> Iterator[_Entry]:
    for name, shape in target.tensors.items():
        yield _Entry(name, target.dtypes.get(name, target.dtype), shape)


def _are_copies(file: _WeightFile, ordered: Sequence[Target]) -> bool:
    """Return whether every target is a copy of the file's bytes at the same offset."""
    offset = len(file.first)
    for target in ordered:
        stored = target.expression
        if not isinstance(stored, Stored) or not stored.is_contiguous:
            return False
        if ((stored.source, stored.file), stored.offset) != (file.key, offset):
            return False
        offset += target.nbytes
    return True
