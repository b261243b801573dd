"""A model to reproduce: its recipe, the provenance in its card, and its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resumerge.buckets.address import is_bucket
from resumerge.buckets.calls import check_library
from resumerge.buckets.model import bucket_model
from resumerge.digests import hash_file
from resumerge.engine.context import RunContext
from resumerge.engine.recovery.checked_shard import compare_shard
from resumerge.errors import InputError, refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.hub.model import cached_hub_model, hub_model
from resumerge.ledger import LEDGER_FILE, Row, read_run
from resumerge.options import Options
from resumerge.options.declaration import Kept
from resumerge.options.options import declared
from resumerge.output.model_files import RECIPE_IN_OUTPUT
from resumerge.output.provenance import Provenance, read_provenance
from resumerge.output_path import CARD
from resumerge.printable import printable
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.references import read_reference
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.remote.model import RemoteModel
from resumerge.sources.companions import LARGEST
from resumerge.sources.remote.files import ensure_cached

_HUB = "hf://"


class OriginalFiles(ABC):
    """The files of a model, in a folder or on a server.

    Attributes:
        where: the model's path or version, for messages.
    """

    where: str

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the bytes of a small file.

        Raises:
            FileNotFoundError: the file does not exist.
            UnfitFile: the file is too large, or not a regular file.
            InputError: the server denies the file.
            Resumable: the file cannot be read now.
        """

    @abstractmethod
    def compare(
        self, shard: Row, units: Sequence[Row], path: Path, check: Callable[[], None]
    ) -> dict[str, str]:
        """Compare a weight file with the shard of the same name that a run wrote.

        Args:
            shard: the row of the shard in the run's ledger.
            units: the rows of the shard's units.
            path: the path of the shard that the run wrote; it is read if only a hash of the
                original is known.
            check: called often. If it raises, the comparison ends with that error.

        Returns:
            a text on each difference, by the name of the tensor, or of the file if tensors cannot
            be told apart.
        """


@dataclass(frozen=True)
class FolderFiles(OriginalFiles):
    """The files of a folder on this machine."""

    folder: Path

    @property
    def where(self) -> str:  # type: ignore[override]
        return str(self.folder)

    def read(self, name: str) -> bytes:
        return read_foreign(self.folder / name, LARGEST)

    def compare(
        self, shard: Row, units: Sequence[Row], path: Path, check: Callable[[], None]
    ) -> dict[str, str]:
        check()
        unit_names = {row["number"]: row["name"] for row in units}
        unit_damage = compare_shard(self.folder, shard, units)
        return {unit_names[number]: text for number, text in unit_damage.items()}


@dataclass(frozen=True)
class RemoteFiles(OriginalFiles):
    """The files of a model on a server, at one version."""

    model: RemoteModel
    metadata: MetadataCache

    @property
    def where(self) -> str:  # type: ignore[override]
        return self.model.version

    def read(self, name: str) -> bytes:
        if name not in self.model.files:
            raise FileNotFoundError(name)
        file = self.model.described([name]).files[name]
        if file.size > LARGEST:
            raise UnfitFile(f"{file.size:,} bytes")
        ensure_cached(file, self.metadata, offline=not self.model.online)
        return read_foreign(file.pointer, LARGEST)

    def compare(
        self, shard: Row, units: Sequence[Row], path: Path, check: Callable[[], None]
    ) -> dict[str, str]:
        """Compare the run's shard with the server's hash of the file, which covers all tensors."""
        name = shard["name"]
        if name not in self.model.files:
            return {name: "it is missing"}
        file = self.model.described([name]).files[name]
        if file.size != shard["nbytes"]:
            return {name: f"{file.size:,} bytes, not {shard['nbytes']:,}"}
        content_check = file.expected_content()()
        hash_file(path, content_check, check)
        return {} if content_check.is_expected else {name: "its hash differs"}


@dataclass(frozen=True)
class Original:
    """A model to reproduce.

    Args:
        files: the files of the model, which are read when they are needed.
        recipe: the text of the recipe that is stored beside its weights.
        provenance: the source models, options and versions in its card.
    """

    files: OriginalFiles
    recipe: str
    provenance: Provenance

    @property
    def pins(self) -> dict[str, dict[str, Any]]:
        """The revision of each remote source model, by the text of its reference."""
        models = self.provenance.models.items()
        return {
            model: {"revision": pin["revision"]} for model, pin in models if pin.get("revision")
        }

    @contextmanager
    def naming_its_recipe(self, config: Path) -> Iterator[None]:
        """Make problems in a copy of the recipe refer to the original's recipe.

        Args:
            config: the path of the copy, which exists only during the command.
        """
        try:
            yield
        except InputError as error:
            recipe_place = f"{RECIPE_IN_OUTPUT} of {self.files.where}"
            error.problems = [
                replace(problem, where=recipe_place) if problem.where == str(config) else problem
                for problem in error.problems
            ]
            raise

    def options(self, given: Options) -> Options:
        """Return the options of a command, with the options that the model was planned with.

        Raises:
            InputError: the card has invalid options, or options that do not affect a plan.
        """
        planned_names = {option.name for option in declared() if option.kept is Kept.PLANNED}
        card_options = self.provenance.options
        try:
            if unknown_names := card_options.keys() - planned_names:
                raise TypeError(f"unknown: {', '.join(sorted(map(str, unknown_names)))}")
            parsed_options = Options.read("run", card_options)
        except (TypeError, InputError) as error:
            raise self.refuse("The card says nothing usable of the options", str(error)) from None
        return replace(given, **{name: getattr(parsed_options, name) for name in card_options})

    def check_versions(self) -> None:
        """Check that this machine computes the same bytes as the machine that made the model.

        Another version of the program is accepted if its numerics are the same.

        Raises:
            InputError: numerics, methods or libraries differ, which may change the bytes.
        """
        versions = self.provenance.computing
        if differences := versions.differences("there"):
            raise self.refuse(
                "This machine computes otherwise than the one that made the model",
                "; ".join(differences),
                "install these versions, and load the same merge methods",
            )

    def refuse(self, what: str, found: str, fix: str = "") -> InputError:
        """Return the error for a model that cannot be reproduced."""
        return refuse(
            what,
            where=self.files.where,
            expected="a model card as resumerge wrote it",
            found=printable(found),
            fix=fix or "make the model again with `resumerge run` and its recipe",
        )


def open_original(named: str, context: RunContext) -> Original:
    """Open a model to reproduce, and read its card and recipe.

    Args:
        named: a folder, the id of a run on this machine, ``org/name[@revision]``, or the address
            of a place in a bucket.
        context: its state folder may hold a run of that name; its metadata cache serves remote
            models.

    Raises:
        InputError: the model does not exist, or has no recipe or no provenance.
        Resumable: the model cannot be read now.
    """
    model_files = _files(named, context)
    try:
        card = model_files.read(CARD).decode(errors="replace")
        recipe = model_files.read(RECIPE_IN_OUTPUT).decode()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _unknown_origin(
            model_files, f"no {Path(str(error.filename or error)).name}"
        ) from None
    except (UnfitFile, UnicodeDecodeError, OSError) as error:
        raise _unknown_origin(model_files, str(error)) from None
    provenance = read_provenance(card)
    if provenance is None:
        raise _unknown_origin(model_files, f"{CARD} without what resumerge notes in its metadata")
    return Original(model_files, recipe, provenance)


def _files(named: str, context: RunContext) -> OriginalFiles:
    runs, metadata = context.runs, context.metadata
    if Path(named).expanduser().exists():
        return FolderFiles(Path(named).expanduser().absolute())
    if any(folder.name == named for folder in runs.runs()):
        return FolderFiles(Path(read_run(runs.find(named) / LEDGER_FILE, "output")))
    try:
        ref = read_reference(named.removeprefix(_HUB))
    except InvalidValue as error:
        raise refuse(
            "There is no such model to make again",
            where=named,
            expected="a folder, a run's id, org/name[@revision], or a place in a bucket",
            found=error.found,
        ) from None
    if is_bucket(ref.name):
        check_library(ref.name, "models")
        return RemoteFiles(bucket_model(ref.name), metadata)
    find_model = cached_hub_model if context.options.offline else hub_model
    return RemoteFiles(find_model(ref.name, ref.revision, metadata), metadata)


def _unknown_origin(files: OriginalFiles, found: str) -> InputError:
    return refuse(
        "The model does not say what it was made of",
        where=files.where,
        expected=f"{CARD} and {RECIPE_IN_OUTPUT} as resumerge writes them beside a model",
        found=found,
        fix="make it again with `resumerge run` and its recipe; `resumerge verify --sources --all` "
        "compares an output of this machine with its models",
    )
