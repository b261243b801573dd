"""A run that comes from its mirror: its ledger moves in, and is made this machine's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from resumerge.engine.checks.preflight import (
    OUTPUT,
    STATE,
    check_output,
    check_path,
    check_writable,
    free_bytes,
)
from resumerge.engine.execute.reporter import Reporter
from resumerge.engine.execute.shard_files import PARTIAL
from resumerge.engine.mirrored.mirror_session import MirrorSession, check_apart, refuse_mirror
from resumerge.engine.mirrored.reconcile import fetch_from_mirror, temporary_folder
from resumerge.engine.recovery.recovery import read_ledger
from resumerge.engine.resources.lock import run_lock
from resumerge.errors import InputError, Resumable, refuse
from resumerge.host.machine import hostname
from resumerge.ledger import LEDGER_FILE, Ledger, take_snapshot
from resumerge.ledger.run_store import RECIPE_FILE, RunStore
from resumerge.mirror.backup_names import CARD
from resumerge.mirror.lease import retry
from resumerge.mirror.ledger_import import is_folder_name
from resumerge.mirror.manifest import Manifest, missing_files
from resumerge.mirror.state import FINISHED, NOTHING, UNFINISHED, MirrorState
from resumerge.options import Options
from resumerge.output.model_files import RECIPE_FILE as RECIPE_IN_MODEL
from resumerge.printable import shell_line
from resumerge.recipe import Recipe, parse_recipe
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.references import read_reference
from resumerge.storage import Storage

LARGEST_RECIPE = 1 << 24

PAGE = 4096
"""Bytes of a disk that a file takes whole."""


class RunImporter:
    """Finds what a mirror holds, and lets a run that this machine does not know move in."""

    def __init__(
        self,
        far: MirrorSession,
        home: RunStore,
        options: Options,
        storage: Storage,
        reporter: Reporter,
    ) -> None:
        self._far, self._home, self._options = far, home, options
        self._storage, self._reporter = storage, reporter

    def find(self, recipe: Recipe | None, out: Path | None) -> Path | Manifest | None:
        """What there is to go on with.

        Args:
            recipe: that the run must be of, unless it is to be given up.
            out: where its output goes; by default as the options say.

        Returns:
            The folder of a run below the state folder, which may have moved in just now; or a
            finished model; or None where there is nothing, and a recipe to begin with.

        Raises:
            InputError: there is something else; or another machine works there.
            Resumable: the mirror cannot be reached.
        """
        with temporary_folder() as folder:
            held = self._far.read_state(folder / LEDGER_FILE)
            if held.what == FINISHED and held.done is not None:
                return self._finished(held.done, held, starts_over=recipe is not None)
            if held.what == NOTHING and recipe is not None:
                return None
            if held.what != UNFINISHED:
                raise refuse_mirror(self._far, held)
            row = _row(folder)
        if recipe is not None and not self._options.restart and not _is_of(row, recipe):
            raise refuse_mirror(self._far, held)
        known = self._known(row["id"])
        return known or self._move_in(row, out or output_of(row, self._options))

    def _known(self, run: str) -> Path | None:
        """The folder of a run of this machine."""
        return next((folder for folder in self._home.runs() if folder.name == run), None)

    def _finished(self, done: Manifest, held: MirrorState, *, starts_over: bool) -> Path | Manifest:
        """What there is to do with a finished mirror: the run itself mends it, where it is known.

        Args:
            starts_over: where the options say so, it need not be whole.
        """
        if starts_over and self._options.restart:
            return done
        lacking = missing_files(done, held.files)
        known = self._known(done.run)
        if known is not None and (lacking or _is_to_mend(known)):
            return known
        if lacking:
            raise _not_whole(done, lacking, self._far)
        return done

    def _move_in(self, row: Mapping[str, Any], out: Path) -> Path:
        """The run's folder, with its ledger from the mirror; it appears whole or not at all."""
        problems = [
            *check_path(out, OUTPUT),
            *check_path(self._home.folder, STATE),
            *check_writable(self._home.folder, STATE),
            *check_output(out),
            *check_apart(out, self._far),
        ]
        if problems:
            raise InputError(problems)
        self._far.hold(row["id"])
        unborn, home = self._home.new(out, self._storage), self._home.folder / row["id"]
        with run_lock(unborn, row["id"]):
            held = self._far.read_state(unborn / LEDGER_FILE)
            if held.what != UNFINISHED or _row(unborn)["id"] != row["id"]:
                raise refuse_mirror(self._far, held)
            for why in held.skipped:
                self._reporter.note(f"Not used: {why}")
            settle_in(unborn, home, out, self._far.url, self._storage)
            self._storage.rename(unborn, home)
        return home


def is_made_of(done: Manifest, recipe: Recipe, options: Options, far: MirrorSession) -> bool:
    """Whether a finished model is what this recipe makes, with these options.

    Where a branch moved since, or a local model was copied, it still is: it was made of this.
    """
    for asked, made in ((options.seed, done.seed), (options.shard_size, done.shard_size)):
        if asked is not None and asked != made:
            return False
    nbytes, sha256 = done.files.get(RECIPE_IN_MODEL, (0, ""))
    if not 0 < nbytes <= LARGEST_RECIPE:
        return False
    data = retry(far.store, lambda: far.store.get(RECIPE_IN_MODEL))
    if hashlib.sha256(data).hexdigest() != sha256:
        return False
    text = data.decode(errors="replace")
    return _is_of({"config_text": text, "config_path": RECIPE_IN_MODEL}, recipe)


def bring_model(far: MirrorSession, done: Manifest, out: Path, storage: Storage) -> None:
    """Bring a finished model here, config.json last; files that are here already stay.

    Raises:
        InputError, Resumable: it cannot be read, or is not what it was, or has no room here.
    """
    names = sorted(done.files, key=lambda name: (name == "config.json", name))
    lacking = [name for name in names if not _has(out / name, name, done.files[name][0])]
    needed = sum(-(-done.files[name][0] // PAGE) * PAGE for name in lacking)
    free = free_bytes(out)
    if free < needed:
        raise Resumable(
            "disk_full",
            f"The disk of {out} is too small to bring back what is in the mirror: that takes "
            f"{needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free. Free some space, then "
            "resume",
        )
    for name in lacking:
        fetch_from_mirror(far, name, None if name == CARD else done.files[name][1], out, storage)


def brought(done: Manifest, out: Path) -> set[str]:
    """Names of files of a finished model that `bring_model` brought before, or began to."""
    whole = {name for name, (nbytes, _) in done.files.items() if _has(out / name, name, nbytes)}
    return whole | {name + PARTIAL for name in done.files}


def _has(path: Path, name: str, nbytes: int) -> bool:
    return path.is_file() and (path.stat().st_size == nbytes or name == CARD)


def _not_whole(done: Manifest, lacking: list[str], far: MirrorSession) -> InputError:
    return refuse(
        "The mirror holds a finished model that is not whole any more",
        where=far.url,
        expected=f"{len(done.files)} files",
        found=f"{len(lacking)} are missing or have another size: {', '.join(lacking[:5])}",
        fix="resume it on the machine that made it; or compute everything again: "
        f"`{shell_line(['resumerge', 'run', 'RECIPE', 'OUT', '--mirror', far.url, '--restart'])}`",
    )


def _is_to_mend(folder: Path) -> bool:
    """Whether all was merged, and something was found damaged since."""
    with closing(read_ledger(folder)) as ledger:
        return not ledger.open_shards() and (ledger.run() or {})["state"] != "done"


def _row(folder: Path) -> dict[str, Any]:
    with closing(Ledger(folder / LEDGER_FILE, read_only=True)) as ledger:
        return ledger.run() or {}


def _is_of(row: Mapping[str, Any], recipe: Recipe) -> bool:
    theirs = parse_recipe(row["config_text"], row["config_path"])
    return theirs.normalized() == recipe.normalized()


def output_of(row: Mapping[str, Any], options: Options) -> Path:
    """Where a run that comes from a mirror goes on: where the user says, else in the working
    folder, under the name that the output has elsewhere.

    Raises:
        InputError: it has no name that a folder can have.
    """
    if options.output is not None:
        return options.output.absolute()
    name = Path(row["output"]).name
    if not is_folder_name(name):
        raise refuse(
            "The output folder of this run has no name that can be used here",
            where=row["id"],
            found=repr(name[:60]),
            fix="name one with --output DIR",
        )
    return Path.cwd() / name


def settle_in(folder: Path, home: Path, out: Path, url: str, storage: Storage) -> None:
    """Make a ledger that came from a mirror this machine's own.

    Nothing that its shards lack in the mirror is here: those are to be computed again.

    Args:
        folder: of the ledger.
        home: the folder that it will have when this is done.
        out: the output's folder here.
        url: of the mirror, as this machine calls it.
    """
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        row = ledger.run() or {}
        there = ledger.mirrored()
        kept = [
            shard["number"]
            for shard in ledger.shards()
            if shard["state"] == "sealed" and shard["name"] in there
        ]
        left = [
            unit["number"]
            for unit in ledger.units()
            if unit["committed_blocks"] and unit["shard"] not in kept
        ]
        folders = {
            source["number"]: local
            for source in ledger.sources()
            if source["kind"] == "local"
            and (local := _here(source["model"], Path(source["folder"]))) is not None
        }
        ledger.move_here(
            {
                "output": str(out),
                "config_path": str(home / RECIPE_FILE),
                "mirror": url,
                "host": hostname(),
            },
            folders,
            left,
            len(kept),
        )
        take_snapshot(ledger, storage)
    storage.write_file(folder / RECIPE_FILE, row["config_text"].encode())
    storage.sync_file(folder / LEDGER_FILE)


def _here(model: str, folder: Path) -> str | None:
    """Where a local model is on this machine, if not where it was on the other one."""
    try:
        if folder.is_dir():
            return None
        local = Path(read_reference(model).name).expanduser().absolute()
        return str(local) if local.is_dir() else None
    except (OSError, RuntimeError, ValueError, InvalidValue):
        return None
