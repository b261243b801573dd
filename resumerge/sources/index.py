"""The files that a model or an adapter consists of, and the index that says what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.sources.formats.registry import FORMATS
from resumerge.sources.formats.safetensors import Safetensors
from resumerge.sources.formats.weight_format import Header, WeightFormat
from resumerge.sources.json_object import json_object, read_json_object
from resumerge.tensors import Stored

INDEX_SUFFIX = ".index.json"

LARGEST_INDEX = 64 << 20
"""The largest index, in bytes. A hundred thousand tensors take a seventh of it."""

INDEX_FILE = Safetensors.model_file + INDEX_SUFFIX
"""The index of a model in several safetensors files, which is also what a merge writes."""


@dataclass(frozen=True)
class Contents:
    """The kind of weights that is looked for in a folder or a repo: a model or an adapter.

    Args:
        kind: the name in messages, like "a model".
        config: the name of the configuration file.
        single: returns the name that the only weight file has in a format.
        fix: what to do if no weights are found.
        prefix: the folder of all its files, with a slash; empty for the model's own.
    """

    kind: str
    config: str
    single: Callable[[WeightFormat], str]
    fix: str
    prefix: str = ""

    @property
    def weights(self) -> list[tuple[str, str]]:
        """The index and the only weight file of each format, by name. The first found is read."""
        singles = [self.single(known) for known in FORMATS]
        return [(single + INDEX_SUFFIX, single) for single in singles]

    @property
    def expected(self) -> str:
        """The files that were looked for, for messages."""
        return ", or ".join(f"{single} or {index} and its files" for index, single in self.weights)

    def may_have_any_name(self, files: Iterable[str]) -> bool:
        """Return whether weights among these files may have any name: nothing describes them."""
        return self is MODEL and {MODEL.config, ADAPTER.config}.isdisjoint(files)

    def missing(self, where: str, others: list[str]) -> InputError:
        """Return the error for a folder or repo without weights.

        Args:
            where: the folder or repo.
            others: the files that are there instead.
        """
        fix = self.fix
        if self is MODEL and ADAPTER.config in others:
            fix = "this is an adapter: write it after the model that it was trained on, like "
            fix += "model+adapter"
        return refuse(
            f"The weights of {self.kind} are missing",
            where=where,
            expected=self.expected,
            found=", ".join(others[:8]) or "nothing",
            fix=fix,
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
)


def read_index(path: Path, prefix: str = "") -> dict[str, str]:
    """Return the file name of each tensor in an index file, with a prefix before the file names.

    Raises:
        InputError: as for `parse_index`, or the file is too large.
    """
    try:
        found = parse_index(read_foreign(path, LARGEST_INDEX), str(path))
    except UnfitFile as error:
        raise _unreadable_index(str(path), str(error)) from None
    return {tensor: prefix + file for tensor, file in found.items()}


def parse_index(raw: bytes, where: str) -> dict[str, str]:
    """Return the file name of each tensor. Files outside the model's folder are refused.

    Raises:
        InputError: not JSON, no ``weight_map``, or a file name that leads out of the folder.
    """
    try:
        weight_map = json_object(raw)["weight_map"]
        pairs = {str(tensor): str(file) for tensor, file in weight_map.items()}
    except (ValueError, KeyError, AttributeError):
        raise _unreadable_index(where, repr(raw[:60])[1:] if raw else "an empty file") from None
    for tensor, file in pairs.items():
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\\" in file or "\0" in file or not file:
            raise refuse(
                "The index names a file outside the model's folder",
                where=where,
                expected="a file name such as model-00001-of-00002.safetensors",
                found=f"{file!r} for tensor {tensor!r}",
                fix="do not use this model: its index is broken or malicious",
            )
    return pairs


def _unreadable_index(where: str, found: str) -> InputError:
    return refuse(
        "The index is not readable",
        where=where,
        expected='a JSON object with "weight_map": {tensor: file}',
        found=found,
        fix="download or save this file again",
    )


def combined(headers: Mapping[str, Header], where: str) -> dict[str, Stored]:
    """Return the tensors of all weight files of a model together.

    Args:
        headers: the header of each file, by the file's name.
        where: the folder or repo, for messages.

    Raises:
        InputError: two files hold a tensor of the same name.
    """
    tensors: dict[str, Stored] = {}
    for file, (found, _, _) in headers.items():
        twice = tensors.keys() & found.keys()
        if twice:
            name = min(twice)
            raise refuse(
                "Two files of the model contain a tensor with the same name",
                where=f"{where}/{file}",
                found=f"{name}, which is also in {tensors[name].file}",
                fix="remove the file that does not belong to the model",
            )
        tensors.update(found)
    return tensors


def check_index(path: Path, tensors: Mapping[str, Stored], prefix: str = "") -> None:
    """Check that every tensor of an index is in the file that the index names.

    Raises:
        InputError: some are not; the error names the first five.
    """
    problems = [
        Problem(
            "The index and a file disagree",
            where=str(path),
            expected=f"tensor {tensor!r} in {file}",
            found=f"in {tensors[tensor].file}" if tensor in tensors else "no such tensor",
            fix="download or save the model again",
        )
        for tensor, file in read_index(path, prefix).items()
        if tensor not in tensors or tensors[tensor].file != file
    ]
    if problems:
        raise InputError(problems[:5])


def read_config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Return the configuration file as a dictionary; empty if the folder has none.

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
            fix="save it again",
        ) from None
