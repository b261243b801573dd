"""A model or an adapter in a local folder: one weight file, or an index and its shards."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.recipe.types import ModelRef
from resumerge.sources.formats.json_object import json_object
from resumerge.sources.formats.weight_file import read_weight_header
from resumerge.sources.index import MODEL, Contents, parse_index
from resumerge.sources.types import Source, SourceFile, TensorInfo


def open_local(ref: ModelRef, folder: Path | None = None, contents: Contents = MODEL) -> Source:
    """Read the headers of a local model or adapter; no tensor data is touched.

    Args:
        folder: where it was when a run began; by default the reference's path, from the working
            folder.
        contents: whether a model is looked for in it, or an adapter.

    Raises:
        InputError: no folder, no weights in it, or files that are damaged.
    """
    folder = folder or Path(os.path.expanduser(ref.name))  # noqa: PTH111
    if not folder.is_dir():
        raise refuse(
            "The model's folder does not exist",
            where=ref.text,
            expected=f"a folder with {contents.config} and {contents.weights[0][1]}",
            found="a file" if folder.exists() else "nothing there",
            fix="check the path; paths are taken from the folder the command runs in",
        )
    folder = folder.resolve()
    if not _is_utf8(str(folder)):
        raise refuse(
            "The model's folder has a name that is not UTF-8",
            where=str(folder).encode(errors="backslashreplace").decode(),
            fix="rename it",
        )
    tensors: dict[str, TensorInfo] = {}
    files: dict[str, SourceFile] = {}
    index, names = weight_files(folder, contents)
    for name in names:
        path = folder / name
        found, digest = read_weight_header(path, name)
        stat = path.stat()
        files[name] = SourceFile(
            name, stat.st_size, {"mtime_ns": stat.st_mtime_ns, "header": digest}
        )
        twice = tensors.keys() & found.keys()
        if twice:
            raise refuse(
                "Two files of one model hold a tensor of the same name",
                where=str(path),
                found=min(twice),
                fix="remove the file that does not belong to the model",
            )
        tensors.update(found)
    if index is not None:
        check_index(folder / index, tensors)
    config = read_config(folder, contents.config)
    return Source(ref, "local", folder, None, config, tensors, files)


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def weight_files(folder: Path, contents: Contents) -> tuple[str | None, list[str]]:
    """The index in `folder`, if there is one, and the names of the weight files."""
    for index, single in contents.weights:
        path = folder / index
        if path.is_file():
            names = sorted(set(parse_index(path.read_bytes(), str(path)).values()))
            absent = [name for name in names if not os.path.isfile(folder / name)]  # noqa: PTH113
            if absent:
                raise refuse(
                    "The index names files that are not there",
                    where=str(path),
                    expected=f"{len(names)} files",
                    found=f"missing: {', '.join(absent)}",
                    fix="copy or download the missing files",
                )
            return index, names
        if (folder / single).is_file():
            return None, [single]
    raise no_weights(str(folder), contents, sorted(path.name for path in folder.iterdir()))


def no_weights(where: str, contents: Contents, others: list[str]) -> InputError:
    """What to say of a folder or repo that lacks the weights looked for."""
    adapter, other = contents is not MODEL, "adapter_config.json" in others
    fix = "save the model with transformers' save_pretrained"
    if adapter:
        fix = "name the folder or repo that peft's save_pretrained wrote, after the '+'"
    elif other:
        fix = "this is an adapter: name it after the model that it was trained on, as model+adapter"
    return refuse(
        f"There are no weights of {'an adapter' if adapter else 'a model'}",
        where=where,
        expected=contents.expected,
        found=", ".join(others[:8]) or "nothing",
        fix=fix,
    )


def check_index(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    """Every tensor that an index names must stand in the file that it names."""
    problems = [
        Problem(
            "The index and a file disagree",
            where=str(path),
            expected=f"tensor {tensor!r} in {file}",
            found=f"in {tensors[tensor].file}" if tensor in tensors else "it is not there",
            fix="download or save the model again",
        )
        for tensor, file in parse_index(path.read_bytes(), str(path)).items()
        if tensor not in tensors or tensors[tensor].file != file
    ]
    if problems:
        raise InputError(problems[:5])


def read_config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """config.json, or another, as a dictionary; empty where the folder has none."""
    path = folder / name
    if not path.is_file():
        return {}
    try:
        return json_object(path.read_bytes())
    except ValueError as error:
        raise refuse(
            f"{name} is not readable",
            where=str(path),
            expected="a JSON object",
            found=str(error),
            fix="save it again",
        ) from None
