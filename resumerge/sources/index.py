"""The files that a model or an adapter consists of, and the index of their tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.sizes import some
from resumerge.sources.adapter_programs import PROGRAMS
from resumerge.sources.checkpoint_files import is_shard, missing_shards
from resumerge.sources.formats.registry import FORMATS, format_of, is_readable
from resumerge.sources.formats.safetensors import Safetensors
from resumerge.sources.formats.weight_format import Header, WeightFormat
from resumerge.sources.json_object import json_object, read_json_object
from resumerge.tensors import Stored

INDEX_SUFFIX = ".index.json"

LARGEST_INDEX = 64 << 20
"""The largest index, in bytes. The index of 100,000 tensors has a seventh of this size."""

INDEX_FILE = Safetensors.model_file + INDEX_SUFFIX
"""The name of the index of a model in several safetensors files. A merge writes it, too."""


@dataclass(frozen=True)
class Contents:
    """The kind of weights to look for in a folder or a repo: a model, an adapter, or a component.

    Args:
        kind: the name in messages, like "a model".
        config: the name of the configuration file, relative to the model's folder.
        single: returns the name of the only weight file in a format.
        fix: the advice in the error if no weights are found.
        prefix: the folder of all files, with a slash; empty for the model's folder.
        others: the names of single weight files that other programs write.
    """

    kind: str
    config: str
    single: Callable[[WeightFormat], str]
    fix: str
    prefix: str = ""
    others: tuple[str, ...] = ()

    @property
    def weights(self) -> list[str]:
        """The names of the only weight file and of the index in each format, by preference.

        The first one that exists is read, as in transformers and PEFT.
        """
        single_files = [
            self.single(weight_format) for weight_format in FORMATS if not weight_format.any_name
        ]
        file_names = [
            name
            for single_file in single_files
            for name in (single_file, single_file + INDEX_SUFFIX)
        ]
        return [*file_names, *self.others]

    @property
    def expected(self) -> str:
        """The expected files, in words, for messages."""
        return ", or ".join(
            f"{name} and its files" if is_index(name) else name for name in self.weights
        )

    def is_variant(self, file: str) -> bool:
        """Return whether a name of `weights` names a variant in a narrower dtype (``fp16``)."""
        return False

    def may_have_any_name(self, files: Iterable[str]) -> bool:
        """Return whether weight files may have any name, because no config file describes them."""
        return self is MODEL and {MODEL.config, ADAPTER.config}.isdisjoint(files)

    def missing(self, where: str, existing_files: list[str]) -> InputError:
        """Return the error for a folder or repo without weights.

        Args:
            where: the folder or repo.
            existing_files: the files that the folder or repo has instead.
        """
        fix, ending = self.fix, f"/{self.config}"
        weight_files = [n for n in existing_files if is_readable(n) and not format_of(n).any_name]
        if self is MODEL and ADAPTER.config in existing_files:
            fix = "this is an adapter: write it after the model that it was trained on, like "
            fix += "model+adapter"
        elif (
            self is ADAPTER
            and MODEL.config in existing_files
            and ADAPTER.config not in existing_files
        ):
            fix = "this is a model, and after the '+' stands an adapter: give each model an entry "
            fix += "of its own"
        elif folders := [n.removesuffix(ending) for n in existing_files if n.endswith(ending)]:
            fix = f"name the folder of one instead (of a repo, download it first): {some(folders)}"
        elif shards := [name for name in weight_files if is_shard(name)]:
            return self._without_index(where, shards)
        elif self is ADAPTER and any(map(_OF_TORCHTUNE.fullmatch, existing_files)):
            fix = OF_TORCHTUNE
        elif len(weight_files) == 1:
            name = PurePosixPath(self.single(format_of(weight_files[0]))).name
            fix = f"rename {weight_files[0]} to {name}, the name that it is looked for under"
        return refuse(
            f"The weights of {self.kind} are missing",
            where=where,
            expected=self.expected,
            found=", ".join(existing_files[:8]) or "nothing",
            fix=fix,
        )

    def _without_index(self, where: str, shards: list[str]) -> InputError:
        """Return the error for weights in several files without an index."""
        index = PurePosixPath(self.single(format_of(shards[0])) + INDEX_SUFFIX).name
        first_missing, count = missing_shards(shards)
        fix = f"download or upload {index} too, or save the model again: it is written with them"
        return refuse(
            f"The weights of {self.kind} have no index",
            where=where,
            expected=f"{index}, without which transformers does not load these files either",
            found=some(shards)
            + (f"; and no {some(first_missing, count=count)}" if first_missing else ""),
            fix=fix + (", with the missing files" if first_missing else ""),
        )


MODEL = Contents(
    "a model",
    "config.json",
    lambda known: known.model_file,
    "save the model with transformers' save_pretrained",
)
ADAPTER = Contents(
    "an adapter",
    "adapter_config.json",
    lambda known: known.adapter_file,
    "after the '+', write the folder or repo that peft's save_pretrained made",
    others=tuple(name for program in PROGRAMS for name in program.weight_files),
)
_OF_TORCHTUNE = re.compile(r"adapter_\d+\.(pt|bin|safetensors)")
OF_TORCHTUNE = (
    "these are torchtune's own files and names: name the folder with the adapter_model and "
    "adapter_config.json that it writes for peft (save_adapter_weights_only: True)"
)
"""The advice in errors about an adapter in torchtune's own format."""


@dataclass(frozen=True)
class Weights:
    """The weights of a model or a component.

    Args:
        tensors: the tensors, by name.
        headers: the header of each weight file, by name.
        file: the name of the index, or else of the only weight file; empty if files of any name
            are read.
        notes: sentences for the user about the files.
    """

    tensors: dict[str, Stored]
    headers: dict[str, Header]
    file: str
    notes: tuple[str, ...]


def is_index(name: str) -> bool:
    """Return whether a name of `Contents.weights` names an index."""
    return name.endswith(".json")


def read_index(path: Path, prefix: str = "") -> dict[str, str]:
    """Return the file name of each tensor in an index file, with `prefix` before the file name.

    Raises:
        InputError: as for `parse_index`, or the file is too large.
    """
    try:
        files_by_tensor = parse_index(read_foreign(path, LARGEST_INDEX), str(path))
    except UnfitFile as error:
        raise _unreadable_index(str(path), str(error)) from None
    return {tensor: prefix + file for tensor, file in files_by_tensor.items()}


def parse_index(raw: bytes, where: str) -> dict[str, str]:
    """Return the file name of each tensor in an index.

    Raises:
        InputError: the index is not JSON, has no ``weight_map``, or names a file outside the
            model's folder.
    """
    try:
        weight_map = json_object(raw)["weight_map"]
        files_by_tensor = {str(tensor): str(file) for tensor, file in weight_map.items()}
    except (ValueError, KeyError, AttributeError):
        raise _unreadable_index(where, repr(raw[:60])[1:] if raw else "an empty file") from None
    first_tensors: dict[str, str] = {}
    for tensor, file in files_by_tensor.items():
        first_tensors.setdefault(file, tensor)
    for file, tensor in first_tensors.items():
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\\" in file or "\0" in file or not file:
            raise refuse(
                "The index names a file outside the model's folder",
                where=where,
                expected="a file name such as model-00001-of-00002.safetensors",
                found=f"{file!r} for tensor {tensor!r}",
                fix="do not use this model: its index is broken or malicious",
            )
    return files_by_tensor


def _unreadable_index(where: str, found: str) -> InputError:
    return refuse(
        "The index is not readable",
        where=where,
        expected='a JSON object with "weight_map": {tensor: file}',
        found=found,
        fix="download or save this file again",
    )


def combined(
    headers: Mapping[str, Header], where: str, index: str
) -> tuple[dict[str, Stored], list[str]]:
    """Return the tensors of all weight files of a model.

    If two files hold a tensor of the same name, the tensor of the later file is returned, as in
    transformers and diffusers.

    Args:
        headers: the header of each file, by the file's name, in the order of the names.
        where: the folder or repo, for messages.
        index: the index that names the files; empty without one.

    Returns:
        (the tensors by name, a line with both files for each tensor that two files hold).

    Raises:
        InputError: two files hold a tensor of the same name, and there is no index.
    """
    tensors: dict[str, Stored] = {}
    replacement_lines = []
    for file, header in headers.items():
        file_tensors = header.tensors
        common_names = tensors.keys() & file_tensors.keys()
        if common_names and index:
            replacement_lines += [
                f"{name} (in {tensors[name].file}; read from {file})" for name in common_names
            ]
        elif common_names:
            name = min(common_names)
            raise refuse(
                "Two files of the model contain a tensor with the same name",
                where=f"{where}/{file}",
                found=f"{name}, which is also in {tensors[name].file}",
                fix="remove the file that does not belong to the model",
            )
        tensors.update(file_tensors)
    return tensors, sorted(replacement_lines)


def check_index(
    path: Path,
    files: Mapping[str, str],
    tensors: Mapping[str, Stored],
    headers: Mapping[str, Header],
) -> list[str]:
    """Check that every tensor of an index is in one of its files.

    Args:
        path: the index, for messages; it is not read again.
        files: the file of each tensor according to the index, as `read_index` returns it.
        tensors: the tensors of all files.
        headers: the header of each file, by the file's name.

    Returns:
        A line for each tensor that is in another file than the index says.

    Raises:
        InputError: tensors of the index are in no file; the error names the first five.
    """
    problems, misplacement_lines = [], []
    for tensor, file in files.items():
        if tensor not in tensors:
            problems.append(
                Problem(
                    "The index and a file disagree",
                    where=str(path),
                    expected=f"tensor {tensor!r} in {file}",
                    found="no such tensor",
                    fix="download or save the model again",
                )
            )
        elif tensor not in headers[file].tensors:
            misplacement_lines.append(f"{tensor} (not in {file}; read from {tensors[tensor].file})")
    if problems:
        raise InputError(problems[:5])
    return sorted(misplacement_lines)


def read_config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Return the configuration file as a dictionary; empty if the file does not exist.

    Raises:
        InputError: the file is not a JSON object.
    """
    path = folder / name
    if not path.exists():
        return {}
    try:
        return read_json_object(path)
    except ValueError as error:
        raise refuse(
            f"{name} is not readable",
            where=str(path),
            expected="a JSON object",
            found=str(error),
            fix="download or save it again",
        ) from None
