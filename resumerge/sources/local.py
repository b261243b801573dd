"""A model or an adapter on this machine: a folder with its weight files, or a single file."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from resumerge.errors import refuse
from resumerge.recipe.types import ModelRef
from resumerge.sizes import some
from resumerge.sources.checkpoint_files import check_readable, no_such_file
from resumerge.sources.formats.registry import format_of, is_readable
from resumerge.sources.formats.weight_format import Header, WeightFormat
from resumerge.sources.index import ADAPTER, MODEL, Contents
from resumerge.sources.model_files import ModelFiles, Opened, open_files
from resumerge.sources.pipelines import PIPELINE
from resumerge.sources.sentence_modules import MODULES
from resumerge.sources.types import FileStamp, Source, SourceFile


def open_local(
    ref: ModelRef, path: Path | None = None, contents: Contents | None = MODEL
) -> Source:
    """Open a local model or adapter: read its headers, but not its tensors.

    Args:
        ref: the model as the recipe names it.
        path: the folder or file that a run pinned; None for the path in the reference, relative to
            the working folder.
        contents: the expected kind, model or adapter; None for either.

    Raises:
        InputError: the path does not exist or has no weights, or a file is damaged.
    """
    kind = contents or MODEL
    path = path or Path(os.path.expanduser(ref.name))  # noqa: PTH111
    if path.is_file():
        check_readable(path.name, ref.text)
        folder, single_file = path.parent, path.name
    elif path.is_dir():
        folder, single_file = path, ""
    elif is_readable(path.name):
        existing_files = (
            [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
        )
        raise no_such_file(ref.text, str(path), existing_files)
    else:
        raise refuse(
            "The model's folder does not exist",
            where=ref.text,
            expected=f"a folder with {kind.config} and {kind.weights[0]}, or a file",
            found=f"no such folder: {path}",
            fix="check the path; it is relative to the folder in which the command runs",
        )
    folder = folder.resolve()
    if not _is_utf8(f"{folder / single_file}"):
        raise refuse(
            "The model's folder has a name that is not UTF-8",
            where=f"{folder / single_file}".encode(errors="backslashreplace").decode(),
            fix="rename it",
        )
    return open_files(_LocalFiles(ref, folder, single_file), contents)


def is_adapter_folder(name: str) -> bool:
    """Return whether a reference names a local folder with an adapter_config.json."""
    folder = Path(os.path.expanduser(name))  # noqa: PTH111
    return os.path.isfile(folder / ADAPTER.config)  # noqa: PTH113


class _LocalFiles(ModelFiles):
    """The files of a model in a local folder."""

    def __init__(self, ref: ModelRef, folder: Path, single: str) -> None:
        self._ref = ref
        self.model = ref.text
        self.where = str(folder)
        self.folder = folder
        self.single = single
        self._stamps: dict[str, FileStamp] = {}

    @cached_property
    def names(self) -> frozenset[str]:
        # Entries that are not regular files are included: their reader refuses them by name.
        top_names = {path.name for path in self.folder.iterdir() if path.exists()}
        inner_paths = self.folder.glob("*/*") if {PIPELINE, MODULES} & top_names else ()
        inner_names = (
            path.relative_to(self.folder).as_posix() for path in inner_paths if path.is_file()
        )
        return frozenset((*top_names, *inner_names))

    def fetch(self, names: Iterable[str]) -> None:
        """Do nothing: local files need no download."""

    def check(self, contents: Contents, weights: list[str], index: str) -> None:
        missing_files = [name for name in weights if not os.path.isfile(self.folder / name)]  # noqa: PTH113
        if not weights or (missing_files and not index):
            folder = self.folder / contents.prefix
            existing_files = sorted(path.name for path in folder.iterdir())
            if dead_names := [name for name in existing_files if not (folder / name).exists()]:
                raise refuse(
                    f"The weights of {contents.kind} are missing",
                    where=self.where,
                    expected=contents.expected,
                    found=f"links to files that do not exist: {some(dead_names)}",
                    fix="download the model again, or copy it with the files that its links name "
                    "(cp -rL)",
                )
            configs_below = sorted(
                f"{path.parent.name}/{path.name}" for path in folder.glob(f"*/{contents.config}")
            )
            raise contents.missing(self.where, [*existing_files, *configs_below])
        if missing_files:
            raise refuse(
                "The index names files that do not exist",
                where=f"{self.folder}/{index}",
                expected=f"{len(weights)} files",
                found=f"missing: {some(missing_files)}",
                fix="copy or download the missing files",
            )

    def headers(self, weights: list[str], known: WeightFormat | None = None) -> dict[str, Header]:
        headers = {}
        for name in weights:
            path = self.folder / name
            self._stamps[name] = FileStamp.of(path.stat())
            headers[name] = (known or format_of(name)).read_local_header(path, name)
        return headers

    def source(self, opened: Opened) -> Source:
        files = {
            name: SourceFile(
                name, stamp.size, {"header": header.digest}, stamp=stamp, first=header.first
            )
            for name, header in opened.headers.items()
            for stamp in [self._stamps[name]]
        }
        return Source(
            ref=self._ref,
            kind="local",
            folder=self.folder,
            revision=None,
            config=opened.config,
            tensors=opened.tensors,
            files=files,
            single=self.is_one_file,
            notes=opened.notes,
            components=opened.components,
            modules=opened.modules,
            described=opened.described,
            led_to_by_file=opened.described is not None,
        )


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
