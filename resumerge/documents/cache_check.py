"""``resumerge cache``: the check of cached files against their hashes, and their repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from resumerge.buckets.address import is_bucket
from resumerge.buckets.calls import check_library
from resumerge.buckets.file import cache_folder as buckets_folder
from resumerge.buckets.model import cached_bucket_files
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.resources.resource_errors import DISK_ERRORS, as_resumable
from resumerge.errors import ResumergeError, refuse
from resumerge.host.machine import cores
from resumerge.hub.cache import cache_folder, cached_revisions
from resumerge.hub.model import cached_files
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import Plan, estimate, read_recipe
from resumerge.recipe.references import is_local
from resumerge.remote.file import RemoteFile
from resumerge.sources import MetadataCache
from resumerge.sources.remote.files import ensure_cached, remote_file

Report = Callable[[str], None]
"""A function that is called with the name of each file before it is read or downloaded."""


@dataclass(frozen=True)
class CachedFile:
    """One file of a cache, and its state.

    Args:
        model: the repo, or the address in a bucket.
        revision: the commit, or the digest of the bucket's listing.
        state: ``intact``, ``damaged``, ``missing`` or, after a repair, ``repaired``.
        bytes: size of the whole file.
        path: the path of the file in the cache, whether or not the file exists.
    """

    model: str
    revision: str
    file: str
    state: str
    bytes: int
    path: str


@dataclass(frozen=True)
class CacheReport:
    """The result of a check or a repair.

    Args:
        notes: messages for the user about the choice of files.
    """

    files: list[CachedFile]
    notes: list[str] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """Whether every file is intact or repaired."""
        return all(file.state in ("intact", "repaired") for file in self.files)

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``cache check --json``."""
        return {
            "intact": self.intact,
            "files": [asdict(file) for file in self.files],
            "notes": self.notes,
        }


def check_cache(target: str, options: Options, report: Report | None = None) -> CacheReport:
    """Read cached files again, even files with an intact verdict, and compare their hashes.

    Verdicts are stored in the state folder. The next ``run`` or ``resume`` downloads damaged files.

    Args:
        target: the path of a recipe, for the cached files that its merge needs; or ``org/name``,
            ``org/name@revision`` or ``s3://bucket/prefix``, for all cached files of that model.
        options: the command's options: the state folder for the verdicts, and the options for
            planning the recipe.
        report: called with the name of each file before it is read.

    Raises:
        InputError: there is no such recipe, or no file of the model is in the cache.
    """
    metadata = MetadataCache(RunStore(options.state_dir).folder)
    try:
        files, notes = _files_of(target, options)
        return CacheReport([state for _, state in _checked(files, metadata, report)], notes)
    finally:
        metadata.close()


def repair_cache(target: str, options: Options, report: Report | None = None) -> CacheReport:
    """Check files as `check_cache` does, and download the files that are damaged or missing.

    Raises:
        InputError: there is no such recipe, no file of the model is in the cache, or the Hub denies
            a file.
        Resumable: the network or the disk failed.
    """
    metadata = MetadataCache(RunStore(options.state_dir).folder)
    try:
        files, notes = _files_of(target, options)
        states = _checked(files, metadata, report)
        repaired_files = [_repaired(file, state, metadata, report) for file, state in states]
        return CacheReport(repaired_files, notes)
    except DISK_ERRORS as error:
        raise as_resumable(error, "repair again") from error
    finally:
        metadata.close()


def _files_of(target: str, options: Options) -> tuple[Sequence[RemoteFile], list[str]]:
    path = Path(target)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        recipe = read_recipe(path)
        try:
            return _needed(Session(options).plan(recipe)), []
        except ResumergeError as error:
            models = [
                model_part
                for ref in recipe.source_models
                for model_part in ref.parts
                if not is_local(model_part.name)
            ]
            files = [file for ref in models for file in _cached(ref.name, ref.revision)]
            if not files:
                raise
            note = (
                "The recipe cannot be planned now, so all cached files of its models are "
                f"checked: {error}"
            )
            return files, [note]
    repo, _, revision = (target, "", "") if is_bucket(target) else target.partition("@")
    files_of_repo = [] if is_local(repo) else list(_cached(repo, revision or None))
    if files_of_repo:
        return files_of_repo, []
    if revision and (cached_revisions_here := cached_revisions(repo)):
        raise refuse(
            "The cache does not have this revision",
            where=target,
            expected=f"one of the cached revisions of {repo}",
            found=f"{revision[:100]}; the cache has {', '.join(cached_revisions_here[:8])}",
            fix="name one of these, or the repo alone for all of them",
        )
    raise refuse(
        "This is neither a recipe nor a model in the cache",
        where=target,
        expected=f"a YAML file, or org/name of a repo that is in {cache_folder()}, or the address "
        f"of a model in a bucket that is in {buckets_folder()}",
        found="no such file, repo or address",
        fix="check the name, or HF_HOME if the cache is elsewhere",
    )


def _cached(model: str, revision: str | None) -> Sequence[RemoteFile]:
    if not is_bucket(model):
        return cached_files(model, revision)
    check_library(model, "models")
    return cached_bucket_files(model.removesuffix("/"))


def _needed(plan: Plan) -> list[RemoteFile]:
    """Return the weight files that a merge reads, and the companions of its reference models."""
    references = {document.reference for document in (*plan.stages, plan)}
    plan_estimate, files = estimate(plan), []
    for number, source in enumerate(plan.sources):
        companions = source.companions if number in references else {}
        files += [
            remote_file(source, name)
            for name in [*companions, *sorted(plan_estimate.read_of(number))]
            if source.part_of(name)[0].is_remote
        ]
    return list(dict.fromkeys(files))


def _checked(
    files: Iterable[RemoteFile], metadata: MetadataCache, report: Report | None
) -> list[tuple[RemoteFile, CachedFile]]:
    def check(file: RemoteFile) -> tuple[RemoteFile, CachedFile]:
        if report is not None:
            report(file.name)
        path, state = file.content, "missing"
        if path is not None:
            is_intact = file.is_intact(path)
            metadata.record_verdict(path, file.etag, is_intact)
            state = "intact" if is_intact else "damaged"
        return file, _described(file, state)

    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(check, files))


def _repaired(
    file: RemoteFile, checked: CachedFile, metadata: MetadataCache, report: Report | None
) -> CachedFile:
    if checked.state == "intact":
        return checked
    if report is not None:
        report(checked.file)
    file = file.refreshed()
    ensure_cached(file, metadata)
    return _described(file, "repaired")


def _described(file: RemoteFile, state: str) -> CachedFile:
    path = file.content or file.pointer
    return CachedFile(file.model, file.revision, file.name, state, file.size, str(path))
