"""Whether the paths that a user names can be used: output folder, state folder, sources apart."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from resumerge.engine.execute.shard_files import PARTIAL
from resumerge.errors import Problem
from resumerge.planning import Plan
from resumerge.planning.shards import shard_name
from resumerge.sources.formats.registry import is_readable

OUTPUT, STATE = "output folder", "state folder"

SHOWN = 5
"""Files that a message names."""

LONGEST_NAME = 255
"""Bytes of one name in a path, on every common filesystem."""

LONGEST_PATH = 4096 - 512
"""Bytes; the rest is for the names of files inside."""


def check_path(path: Path, what: str) -> list[Problem]:
    """A path must be UTF-8, and one that a folder can have.

    Args:
        what: the folder is, in a message: ``output folder``.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        found = "bytes that are not UTF-8"
    else:
        found = _unfit(path)
    if not found:
        return []
    return [
        Problem(
            f"The {what} cannot be used",
            where=str(path).encode(errors="backslashreplace").decode(),
            expected="a folder, or a valid name for a new folder",
            found=found,
            fix=f"name another {what}",
        )
    ]


def _unfit(path: Path) -> str:
    """What is wrong with the path of a folder; empty if nothing."""
    if "\0" in str(path):
        return "a null byte in its name"
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest > LONGEST_NAME:
        return f"a name of {longest} bytes"
    if len(os.fsencode(path)) > LONGEST_PATH:
        return f"a path of {len(os.fsencode(path))} bytes"
    try:
        for folder in (path, *path.parents):
            if folder.is_symlink() and not folder.exists():
                return f"{folder} is a broken link to {folder.readlink()}"
            if folder.exists():
                return "" if folder.is_dir() or folder == path else f"{folder} is a file"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def check_writable(path: Path, what: str) -> list[Problem]:
    """The user must be able to create files in a folder, or in its nearest parent that exists."""
    existing = next(folder for folder in (path, *path.parents) if folder.is_dir())
    if os.access(existing, os.W_OK | os.X_OK):
        return []
    return [
        Problem(
            f"The {what} cannot be written to",
            where=str(path),
            found=f"{existing} is read-only for this user",
            fix=f"change its permissions, or name another {what}",
        )
    ]


def check_output(out: Path, ours: Collection[str] = ()) -> list[Problem]:
    """The output must be a new or empty folder that can be written to.

    Args:
        ours: names of files that are to be deleted first, and so do not count.
    """
    if not out.exists():
        return [*_check_name(out), *check_writable(out, OUTPUT)]
    others = (name for name in _files(out) if name not in ours) if out.is_dir() else ()
    inside = sorted(itertools.islice(others, SHOWN))
    if out.is_dir() and not inside:
        return check_writable(out, OUTPUT)
    unfinished = any(name.endswith(PARTIAL) for name in inside)
    return [
        Problem(
            "The output folder contains other files" if inside else "The output is a file",
            where=str(out),
            expected="only files that the run wrote"
            if ours
            else "a new or empty folder, or the folder of an unfinished run",
            found=", ".join(inside) or f"a file of {out.stat().st_size} bytes",
            fix="name the state folder of its run with --state-dir, or name another output folder"
            if unfinished
            else "move the files that you need to another place, and delete the rest"
            if ours
            else "name another output folder",
        )
    ]


def _check_name(out: Path) -> list[Problem]:
    """A new folder must not be named like a weight file: who writes that expects a file."""
    if not is_readable(out.name):
        return []
    return [
        Problem(
            "The output is a folder, and this is the name of a weight file",
            where=str(out),
            expected="the name of a folder; the weights will be in files inside",
            found=out.name,
            fix=f"name the folder {out.stem}: a model in one file will be "
            f"{out.stem}/{shard_name(0, 1)}",
        )
    ]


def check_outside(out: Path, sources: Iterable[Path], what: str = OUTPUT) -> list[Problem]:
    """The output must not be a source or lie inside one.

    The next run would read it as part of the source, and ``--restart`` could delete the source.
    """
    return [
        Problem(
            f"The {what} is inside a source model",
            where=str(out),
            found=f"inside {folder}",
            fix="name a folder outside of the model's folder",
        )
        for folder in sources
        if folder.resolve() in (out.resolve(), *out.resolve().parents)
    ]


def source_folders(plan: Plan) -> list[Path]:
    """The folders that are models, with all that is in them. A single file's folder is none."""
    return [source.folder for source in plan.sources if not source.single]


def _files(folder: Path) -> Iterator[str]:
    """The files below a folder, and its links, by their relative paths."""
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(parent) / name).relative_to(folder))
