"""A remote model: opened from its headers, and downloaded only as needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from resumerge.errors import InputError, refuse
from resumerge.recipe.types import ModelRef
from resumerge.remote.abandonable_threads import call_for_each
from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.remote.model import RemoteModel
from resumerge.sizes import some
from resumerge.sources.checkpoint_files import no_such_file
from resumerge.sources.companions import companion_files
from resumerge.sources.formats.registry import UNREADABLE, looks_like_weights, read_header
from resumerge.sources.formats.weight_format import Header, WeightFormat
from resumerge.sources.index import Contents
from resumerge.sources.model_files import ModelFiles, Opened, open_files
from resumerge.sources.remote.files import describe_missing, ensure_cached
from resumerge.sources.remote.headers import remote_header
from resumerge.sources.types import Source, SourceFile

HEADER_THREADS = 8
"""The number of headers read at once. A model of 200 files takes 200 round trips."""


def open_remote_model(
    ref: ModelRef, model: RemoteModel, metadata: MetadataCache, contents: Contents | None
) -> Source:
    """Open a remote model: read its config, its index and the headers of its weight files.

    The config and the index are downloaded. Headers are read from cached files, or else by range
    requests. No weight file is downloaded.

    Args:
        ref: the model as the recipe names it.
        model: the files of one version of the model, as the server lists them.
        metadata: the metadata cache of remote files.
        contents: the expected kind, model or adapter; None for either.

    Returns:
        The source. A file is `present` if the cache has the whole file and does not know that it is
        damaged.

    Raises:
        InputError: the model has no weights, a header is damaged, or access is denied; offline, the
            error lists the missing files.
        Resumable: the network failed.
    """
    if ref.file and ref.file not in model.files:
        if model.online:
            raise no_such_file(model.version, ref.file, model.files)
        raise model.offline_error([ref.file])
    return open_files(_RemoteFiles(ref, model, metadata), contents)


class _RemoteFiles(ModelFiles):
    """The files of one version of a model on a server."""

    def __init__(self, ref: ModelRef, model: RemoteModel, metadata: MetadataCache) -> None:
        self._ref = ref
        self.model = self.where = ref.text
        self.folder = model.folder
        self.single = ref.file
        self._model = model
        self._metadata = metadata

    @property
    def names(self) -> Collection[str]:
        return self._model.files

    def fetch(self, names: Iterable[str]) -> None:
        names = sorted(names)
        self._model = self._model.described(names)
        for name in names:
            file = self._model.files[name]
            ensure_cached(file, self._metadata, offline=not self._model.online)

    def check(self, contents: Contents, weights: list[str], index: str) -> None:
        model = self._model
        if not weights and (model.online or any(n.endswith(UNREADABLE) for n in model.files)):
            sorted_names = sorted(
                model.files, key=lambda name: (not looks_like_weights(name), name)
            )
            raise contents.missing(model.version, sorted_names)
        missing_files = [name for name in weights if name not in model.files]
        if not model.online:
            missing_files += [
                name
                for name in weights
                if (file := model.files.get(name)) and not file.content
                if self._metadata.header(file.identity) is None
            ]
            missing_files += [] if weights else [contents.expected]
            if contents.config not in model.files and not model.is_listing:
                missing_files.append(contents.config)
            if missing_files:
                raise model.offline_error(sorted(missing_files))
        elif missing_files:
            raise refuse(
                "The index names files that do not exist",
                where=model.version,
                expected=f"{len(weights)} files",
                found=f"missing: {some(missing_files)}",
                fix=model.fix_absent,
            )

    def headers(self, weights: list[str], known: WeightFormat | None = None) -> dict[str, Header]:
        if known is not None:
            raise refuse(
                f"A {known.name} is read from this machine's disks alone",
                where=self.where,
                expected="a folder of this machine",
                found=some(weights),
                fix="download the folder, and name the copy",
            )
        self._model = self._model.described(weights)
        files = [self._model.files[name] for name in weights]
        return dict(zip(weights, call_for_each(self._header, files, HEADER_THREADS)))

    def _header(self, file: RemoteFile) -> Header:
        online = self._model.online
        if online:
            file.link()  # the cache may have the content from another version of the model
        path = file.pointer
        if not (file.whole and path.is_file()) or self._metadata.verdict(path, file.etag) is False:
            if not online and self._metadata.header(file.identity) is None:
                raise file.offline_error([describe_missing(file)])
            return remote_header(file, self._metadata)
        try:
            return read_header(path, file.name)
        except InputError:
            if not online:
                raise
            return remote_header(file, self._metadata)  # shows whether only the copy is damaged

    def source(self, opened: Opened) -> Source:
        names, companions = list(opened.headers), list[str]()
        if not self.is_one_file:
            sizes = {name: max(0, file.size) for name, file in self._model.files.items()}
            companions = companion_files(sizes, opened.components)
        model = self._model.described([*names, *companions])
        found_files = {name: self._source_file(model.files[name]) for name in (*names, *companions)}
        first_bytes = {name: header.first for name, header in opened.headers.items()}
        return Source(
            ref=self._ref,
            kind=model.kind,
            folder=self.folder,
            revision=model.pin(names),
            config=opened.config,
            tensors=opened.tensors,
            files={name: replace(found_files[name], first=first_bytes[name]) for name in names},
            companions={name: found_files[name] for name in companions},
            single=self.is_one_file,
            notes=opened.notes,
            components=opened.components,
            modules=opened.modules,
            described=opened.described,
            led_to_by_file=opened.described is not None,
        )

    def _source_file(self, file: RemoteFile) -> SourceFile:
        path, verdict = file.content, self._metadata.verdict
        is_present = path is not None and file.whole and verdict(path, file.etag) is not False
        return SourceFile(file.name, file.size, {"etag": file.etag}, is_present)
