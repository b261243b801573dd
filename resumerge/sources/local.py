"""A model or an adapter on this machine: a folder with its weight files, or a single file."""

from __future__ import annotations

import os.path
from pathlib import Path

from resumerge.errors import refuse
from resumerge.recipe.types import ModelRef
from resumerge.sources.checkpoint_files import (
    check_readable,
    checkpoint_files,
    checkpoint_tensors,
    no_such_file,
)
from resumerge.sources.formats.registry import is_readable, read_header
from resumerge.sources.formats.weight_format import Header
from resumerge.sources.index import (
    MODEL,
    Contents,
    check_index,
    combined,
    read_config,
    read_index,
)
from resumerge.sources.pipelines import PIPELINE, Component, is_pipeline, read_pipeline
from resumerge.sources.types import FileStamp, Source, SourceFile
from resumerge.tensors import Stored


def open_local(ref: ModelRef, path: Path | None = None, contents: Contents = MODEL) -> Source:
    """Read the headers of a local model or adapter, but not its tensors.

    Args:
        ref: the model as the recipe names it.
        path: the folder or file that a run has pinned; by default the reference's, relative to the
            working folder.
        contents: whether the folder should hold a model or an adapter.

    Raises:
        InputError: the path does not exist or has no weights, or a file is damaged.
    """
    path = path or Path(os.path.expanduser(ref.name))  # noqa: PTH111
    if path.is_file():
        check_readable(path.name, ref.text)
        folder, single = path.parent, path.name
    elif path.is_dir():
        folder, single = path, None
    elif is_readable(path.name):
        there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise no_such_file(ref.text, str(path), there)
    else:
        raise refuse(
            "The model's folder does not exist",
            where=ref.text,
            expected=f"a folder with {contents.config} and {contents.weights[0][1]}, or a file",
            found=f"no such folder: {path}",
            fix="check the path; it is relative to the folder in which the command runs",
        )
    folder = folder.resolve()
    if not _is_utf8(f"{folder}/{single}"):
        raise refuse(
            "The model's folder has a name that is not UTF-8",
            where=f"{folder / (single or '')}".encode(errors="backslashreplace").decode(),
            fix="rename it",
        )
    if single is None and is_pipeline(contents, [path.name for path in folder.iterdir()]):
        return _open_pipeline(ref, folder)
    index, names = _weight_files(folder, contents) if single is None else (None, [single])
    tensors, headers, files = _read_weights(folder, contents, index, names)
    config = read_config(folder, contents.config) if single is None else {}
    tensors, notes = checkpoint_tensors(ref.text, headers, tensors, config)
    is_single = single is not None
    return Source(ref, "local", folder, None, config, tensors, files, single=is_single, notes=notes)


def _open_pipeline(ref: ModelRef, folder: Path) -> Source:
    """Open all components of a pipeline as one model."""
    files: dict[str, SourceFile] = {}

    def read(part: Component) -> tuple[dict[str, Stored], dict[str, Header], str]:
        index, names = _weight_files(folder, part)
        tensors, headers, more = _read_weights(folder, part, index, names)
        files.update(more)
        return tensors, headers, index or names[0]

    present = [p.relative_to(folder).as_posix() for p in folder.glob("*/*") if p.is_file()]
    found = read_pipeline(read_config(folder, PIPELINE), present, read)
    _, notes = checkpoint_tensors(ref.text, found.headers, found.tensors, {})
    return Source(
        *(ref, "local", folder, None, {}, found.tensors, files),
        notes=notes,
        components=found.stems,
    )


def _read_weights(
    folder: Path, contents: Contents, index: str | None, names: list[str]
) -> tuple[dict[str, Stored], dict[str, Header], dict[str, SourceFile]]:
    """Return the tensors in weight files, with the header of each file and what pins it."""
    headers: dict[str, Header] = {}
    files: dict[str, SourceFile] = {}
    for name in names:
        path = folder / name
        stamp = FileStamp.of(path.stat())
        headers[name] = read_header(path, name)
        files[name] = SourceFile(name, stamp.size, {"header": headers[name].digest}, stamp=stamp)
    tensors = combined(headers, str(folder))
    if index is not None:
        check_index(folder / index, tensors, contents.prefix)
    return tensors, headers, files


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _weight_files(folder: Path, contents: Contents) -> tuple[str | None, list[str]]:
    """Return the name of the folder's index, or None without one, and those of the weight files."""
    for index, single in contents.weights:
        path = folder / index
        if path.exists():
            names = sorted(set(read_index(path, contents.prefix).values()))
            absent = [name for name in names if not os.path.isfile(folder / name)]  # noqa: PTH113
            if absent:
                raise refuse(
                    "The index names files that do not exist",
                    where=str(path),
                    expected=f"{len(names)} files",
                    found=f"missing: {', '.join(absent)}",
                    fix="copy or download the missing files",
                )
            return index, names
        if (folder / single).is_file():
            return None, [single]
    present = sorted(path.name for path in (folder / contents.prefix).iterdir())
    if contents.may_have_any_name(present) and (names := checkpoint_files(present)):
        return None, names
    raise contents.missing(str(folder), present)
