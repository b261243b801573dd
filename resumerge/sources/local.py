"""A model in a local folder: one safetensors file, or an index and its shards."""

from __future__ import annotations

import json
import os.path
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.recipe.model import ModelRef
from resumerge.sources.headers import read_header
from resumerge.sources.index import INDEX_FILE, SINGLE_FILE, parse_index
from resumerge.sources.model import Source, SourceFile, TensorInfo


def open_local(ref: ModelRef, folder: Path | None = None) -> Source:
    """Read the headers of a local model; no tensor data is touched.

    Args:
        folder: where it was when a run began; by default the reference's path, from the working
            folder.

    Raises:
        InputError: no folder, no safetensors in it, or files that are damaged.
    """
    folder = folder or Path(os.path.expanduser(ref.name))  # noqa: PTH111
    if not folder.is_dir():
        raise refuse(
            "The model's folder does not exist",
            where=ref.text,
            expected="a folder with config.json and model.safetensors",
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
    for name in weight_files(folder):
        path = folder / name
        found, digest = read_header(path, name)
        stat = path.stat()
        files[name] = SourceFile(
            name, stat.st_size, {"mtime_ns": stat.st_mtime_ns, "header": digest}
        )
        twice = tensors.keys() & found.keys()
        if twice:
            raise refuse(
                "A tensor stands in two files of one model",
                where=str(path),
                found=min(twice),
                fix="remove the file that does not belong to the model",
            )
        tensors.update(found)
    check_index(folder, tensors)
    return Source(ref, "local", folder, None, read_config(folder), tensors, files)


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def weight_files(folder: Path) -> list[str]:
    """Names of the safetensors files that make up the model in `folder`."""
    if (folder / INDEX_FILE).is_file():
        index = parse_index((folder / INDEX_FILE).read_bytes(), str(folder / INDEX_FILE))
        names = sorted(set(index.values()))
        absent = [name for name in names if not os.path.isfile(folder / name)]  # noqa: PTH113
        if absent:
            raise refuse(
                "The index names files that are not there",
                where=str(folder / INDEX_FILE),
                expected=f"{len(names)} files",
                found=f"missing: {', '.join(absent)}",
                fix="copy or download the missing files",
            )
        return names
    if (folder / SINGLE_FILE).is_file():
        return [SINGLE_FILE]
    others = sorted(path.name for path in folder.iterdir())
    raise refuse(
        "The folder holds no safetensors model",
        where=str(folder),
        expected=f"{SINGLE_FILE}, or {INDEX_FILE} and its files",
        found=", ".join(others[:8]) or "an empty folder",
        fix="save the model with safe_serialization=True",
    )


def check_index(folder: Path, tensors: dict[str, TensorInfo]) -> None:
    """Every tensor that the index names must stand in the file that it names."""
    path = folder / INDEX_FILE
    if not path.is_file():
        return
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


def read_config(folder: Path) -> dict[str, Any]:
    """config.json as a dictionary; empty where the folder has none."""
    path = folder / "config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise refuse(
            "config.json is not readable", where=str(path), found=str(error), fix="save it again"
        ) from None
    if not isinstance(config, dict):
        raise refuse(
            "config.json is not a JSON object",
            where=str(path),
            found=str(config)[:60],
            fix="save it again",
        )
    return config
