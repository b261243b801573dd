"""Check the paths that a user names. They must be usable; the output must be outside of sources."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.errors import Problem
from resumerge.ledger.file_names import is_output_name
from resumerge.local_path import OUTPUT, is_within
from resumerge.output_path import SUFFIX, OutputPath
from resumerge.planning import Plan
from resumerge.sources.formats.registry import is_readable

STATE, STAGES = "state folder", "folder of the stages"

SHOWN = 5
"""The most files that a message names."""

LONGEST_NAME = 255
"""The most bytes of one name in a path, on every common filesystem."""

LONGEST_PATH = 4096 - 512
"""The most bytes of a path. Linux allows 4096; the other 512 are for names of files inside."""


_A_FOLDER = "a folder, or a valid name for a new folder"


def check_path(path: Path, what: str, expected: str = _A_FOLDER) -> list[Problem]:
    """Return the problems of a path that is not UTF-8, or that the system cannot create.

    Args:
        path: the path as the user named it; nothing needs to exist there.
        what: the path's purpose for messages, like ``state folder``.
        expected: a description of a valid path for messages.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        fault = "bytes that are not UTF-8"
    else:
        fault = _unfit(path)
    if not fault:
        return []
    return [
        Problem(
            f"The {what} cannot be used",
            where=str(path).encode(errors="backslashreplace").decode(),
            expected=expected,
            found=fault,
            fix=f"name another {what}",
        )
    ]


def _unfit(path: Path) -> str:
    """Return the problem of a path as text; empty if there is none."""
    if "\0" in str(path):
        return "a null byte in its name"
    longest_name_bytes = max((len(os.fsencode(name)) for name in path.parts), default=0)
    if longest_name_bytes > LONGEST_NAME:
        return f"a name of {longest_name_bytes} bytes"
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
    """Return a problem if the user cannot create files in a folder or its nearest parent.

    The nearest parent is the first folder above that exists.
    """
    nearest_folder = next(folder for folder in (path, *path.parents) if folder.is_dir())
    if os.access(nearest_folder, os.W_OK | os.X_OK):
        return []
    return [
        Problem(
            f"The {what} cannot be written to",
            where=str(path),
            found=f"{nearest_folder} is read-only for this user",
            fix=f"change its permissions, or name another {what}",
        )
    ]


def check_output_path(out: OutputPath) -> list[Problem]:
    """Return the problems of an output's path; a file also needs a name that mirrors accept."""
    if not out.is_file:
        return check_path(out.path, OUTPUT)
    problems = check_path(out.path, OUTPUT, "a valid name for a new file")
    if problems or is_output_name(out.path.name):
        return problems
    return [
        Problem(
            "The output cannot have this name",
            where=str(out.folder),
            expected="a visible file, with a name of at most 200 bytes of printable characters",
            found=repr(out.path.name),
            fix="name another file",
        )
    ]


def check_output(out: OutputPath, ignored: Collection[str] = ()) -> list[Problem]:
    """Return a problem unless the output is new or an empty folder, and writable.

    Args:
        out: the output of the command; nothing needs to exist there.
        ignored: names of files that will be deleted first, and therefore do not count.
    """
    if out.is_file:
        return _check_file(out, ignored)
    folder = out.folder
    if not folder.exists():
        return check_writable(folder, OUTPUT)
    other_names = (
        (name for name in _files(folder) if name not in ignored) if folder.is_dir() else ()
    )
    shown_names = sorted(itertools.islice(other_names, SHOWN))
    if folder.is_dir() and not shown_names:
        return check_writable(folder, OUTPUT)
    is_unfinished = any(name.endswith(PARTIAL) for name in shown_names)
    return [
        Problem(
            "The output folder contains other files" if shown_names else "The output is a file",
            where=str(out),
            expected="only files that the run wrote"
            if ignored
            else "a new or empty folder, or the folder of an unfinished run",
            found=", ".join(shown_names) or f"a file of {folder.stat().st_size} bytes",
            fix=_OF_ANOTHER_STATE + "folder"
            if is_unfinished
            else "move the files that you need to another place, and delete the rest"
            if ignored
            else "name another output folder",
        )
    ]


_OF_ANOTHER_STATE = "name the state folder of its run with --state-dir, or name another output "


def _check_file(out: OutputPath, ignored: Collection[str]) -> list[Problem]:
    """Return a problem if the name of the output file, finished or partial, is taken."""
    possible_names = [
        name for name in (out.path.name, out.path.name + PARTIAL) if name not in ignored
    ]
    taken_names = [name for name in possible_names if os.path.lexists(out.folder / name)]
    if not taken_names:
        return check_writable(out.folder, OUTPUT)
    is_unfinished = taken_names == possible_names[-1:]
    return [
        Problem(
            "The output exists already",
            where=str(out),
            expected="the name of a new file, or the file of an unfinished run",
            found=f"a folder named {out.path.name}"
            if out.path.is_dir()
            else ", ".join(taken_names),
            fix=_OF_ANOTHER_STATE + "file" if is_unfinished else "name another output file",
        )
    ]


def check_form(out: OutputPath, reference: str, *, single: bool) -> list[Problem]:
    """Return a problem if the output is named like a weight file, but cannot be one.

    The output can be one file if it ends in `SUFFIX` and the reference model is a single file, or
    if it ends in `GGUF`.

    Args:
        out: the output of the command; nothing needs to exist there.
        reference: the name of the reference model, for the message.
        single: whether the reference model is a single weight file.
    """
    is_named_like_weights = is_readable(out.path.name) and not out.path.is_dir()
    if not is_named_like_weights or out.is_gguf or (out.is_file and single):
        return []
    stem = out.path.stem
    if single:
        return [
            Problem(
                "Weights are written as safetensors",
                where=str(out),
                expected=f"the name of a file that ends in {SUFFIX}, or of a folder",
                found=out.path.name,
                fix=f"name the file {stem}{SUFFIX}, or the folder {stem}",
            )
        ]
    return [
        Problem(
            "The output is a folder, and this is the name of a weight file",
            where=str(out),
            expected=f"the name of a folder, because {reference} is one",
            found=out.path.name,
            fix=f"name the folder {stem}",
        )
    ]


def check_outside(out: Path, sources: Iterable[Path], what: str = OUTPUT) -> list[Problem]:
    """Return a problem for each source model that is the output or contains it.

    Otherwise the next run would read the output as part of the source, and ``--restart`` could
    delete the source.
    """
    return [
        Problem(
            f"The {what} is inside a source model",
            where=str(out),
            found=f"inside {folder}",
            fix="name a folder outside of the model's folder",
        )
        for folder in sources
        if is_within(out, folder)
    ]


def check_state(state: Path, out: OutputPath) -> list[Problem]:
    """Return a problem if ledgers would be stored inside the output folder.

    Ledgers there would be uploaded with the model. Also, ``--restart`` refuses a folder with files
    that the run did not write.
    """
    if out.is_file or not is_within(state, out.path):
        return []
    return [
        Problem(
            f"The {STATE} is inside the output",
            where=str(state),
            expected="ledgers beside the model, which is all that the output holds",
            found=f"inside {out.path}",
            fix="name another folder with --state-dir, or with RESUMERGE_STATE_DIR",
        )
    ]


def source_folders(plan: Plan) -> list[Path]:
    """Return the folders of the sources that are folders.

    A source that is a single weight file or a GGUF file has no such folder.
    """
    sources_and_carriers = [(source, source.carrier) for source in plan.sources]
    return [
        s.folder for s, carrier in sources_and_carriers if not (s.single or carrier.led_to_by_file)
    ]


def _files(folder: Path) -> Iterator[str]:
    """Yield the relative paths of all files and links below a folder."""
    for parent, folders, files in os.walk(folder):
        folder_links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in (*files, *folder_links):
            yield str((Path(parent) / name).relative_to(folder))
