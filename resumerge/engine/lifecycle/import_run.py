"""Import a run from its mirror: copy its ledger, and adapt it to this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from resumerge.engine.checks.drift import is_of_recipe
from resumerge.engine.checks.paths import (
    STATE,
    check_output,
    check_output_path,
    check_path,
    check_writable,
)
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.bucket_output import check_stays_in_bucket
from resumerge.engine.mirror_session.checks import check_apart, refuse_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.opening.pins import pinned_path
from resumerge.engine.recovery.open_ledger import read_ledger
from resumerge.engine.resources.lock import run_lock
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.errors import InputError, Problem, refuse
from resumerge.host.machine import hostname
from resumerge.ledger import LEDGER_FILE, Ledger, take_snapshot
from resumerge.ledger.file_names import is_output_name
from resumerge.ledger.run_store import RECIPE_FILE, is_output_in
from resumerge.mirror.manifest import Manifest, missing_files
from resumerge.mirror.state import FINISHED, NOTHING, UNFINISHED, MirrorState
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.printable import shell_line
from resumerge.recipe import Recipe
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.references import read_reference
from resumerge.sizes import counted, some
from resumerge.storage import Storage


def find_in_mirror(
    context: RunContext,
    mirror: MirrorSession,
    recipe: Recipe | None = None,
    out: OutputPath | None = None,
) -> Path | Manifest | None:
    """Return the run of a mirror; import it if this machine does not have it.

    Args:
        context: its options `restart` and `output` apply; its state folder receives an imported
            run.
        mirror: the session with the mirror to look in; importing a run acquires its lease.
        recipe: the recipe that the run must have, unless ``--restart`` abandons the run; None to
            accept any recipe.
        out: the output on this machine; None to derive it from the options or the run.

    Returns:
        the folder of the run's ledger; the manifest of a finished model; or None if the mirror is
        empty and a recipe is given.

    Raises:
        InputError: the mirror holds something else, or another machine is working there.
        Resumable: the mirror cannot be reached.
    """
    with TemporaryFolder() as temporary_folder:
        mirror_state = mirror.read_state(temporary_folder / LEDGER_FILE)
        if mirror_state.kind == FINISHED and mirror_state.manifest is not None:
            restart = recipe is not None and context.options.restart
            return _finished(context, mirror, mirror_state.manifest, mirror_state, restart=restart)
        if mirror_state.kind == NOTHING and recipe is not None:
            return None
        if mirror_state.kind != UNFINISHED:
            raise refuse_mirror(mirror, mirror_state)
        run_record = _record(temporary_folder)
    if recipe is not None and not context.options.restart and not is_of_recipe(run_record, recipe):
        raise refuse_mirror(mirror, mirror_state)
    local_folder = _known_run(context, run_record["id"])
    return local_folder or _import(
        context, mirror, run_record, out or _output_here(context, run_record, mirror.url)
    )


def _known_run(context: RunContext, run: str) -> Path | None:
    """Return the folder of a run on this machine; None if this machine does not have the run."""
    return next((folder for folder in context.runs.runs() if folder.name == run), None)


def _finished(
    context: RunContext,
    mirror: MirrorSession,
    manifest: Manifest,
    state: MirrorState,
    *,
    restart: bool,
) -> Path | Manifest:
    """Return a finished mirror's manifest, or the folder of its run if this machine can repair it.

    Args:
        context: its state folder may hold the run that made the model.
        mirror: the session with the mirror, named by the error if files are missing.
        manifest: the manifest that `state` contains.
        state: the state of the mirror, with the sizes of the files that exist there.
        restart: whether the model will be abandoned; then missing files do not matter.
    """
    if restart:
        return manifest
    missing_names = missing_files(manifest, state.files)
    folder = _known_run(context, manifest.run)
    if folder is not None and (missing_names or _found_damage_since(folder)):
        return folder
    if missing_names:
        raise _incomplete(manifest, missing_names, mirror)
    return manifest


def _import(
    context: RunContext, mirror: MirrorSession, record: Mapping[str, Any], out: OutputPath
) -> Path:
    """Copy a run's ledger from its mirror, and return its folder.

    The folder appears only when it is complete.
    """
    mirror.set_noun_for(out.path)
    check_stays_in_bucket(context.options, out.path, mirror.url, mirror.url)
    runs, storage = context.runs, context.storage
    problems = [
        *check_output_path(out),
        *check_same_form(out, Path(record["output"])),
        *check_path(runs.folder, STATE),
        *check_writable(runs.folder, STATE),
        *check_output(out),
        *check_apart(out, mirror),
    ]
    if problems:
        raise InputError(problems)
    mirror.acquire_lease(record["id"])
    staged_folder, final_folder = runs.stage(out.model, storage), runs.folder / str(record["id"])
    with run_lock(staged_folder, record["id"]):
        mirror_state = mirror.read_state(staged_folder / LEDGER_FILE)
        if mirror_state.kind != UNFINISHED or _record(staged_folder)["id"] != record["id"]:
            raise refuse_mirror(mirror, mirror_state)
        for reason in mirror_state.skipped:
            context.reporter.note(
                f"A snapshot of the ledger in the {mirror.store.noun} is not used: {reason}"
            )
        localize(staged_folder, final_folder, out.path, mirror.url, storage)
        storage.rename(staged_folder, final_folder)
    return final_folder


def _incomplete(manifest: Manifest, missing: list[str], mirror: MirrorSession) -> InputError:
    noun = mirror.store.noun
    output_words = [mirror.url] if noun == "output" else ["OUT", "--mirror", mirror.url]
    restart_words = ["resumerge", "run", "RECIPE", *output_words, "--restart"]
    return refuse(
        f"The finished model in the {noun} is incomplete",
        where=mirror.url,
        expected=counted(len(manifest.files), "file"),
        found=f"missing, or of a different size: {some(missing)}",
        fix="resume the run on the machine that made it; or compute everything again: "
        f"`{shell_line(restart_words)}`",
    )


def _found_damage_since(folder: Path) -> bool:
    """Return whether damage was found in a run after it was complete."""
    with closing(read_ledger(folder)) as ledger:
        return not ledger.shards.open() and ledger.run()["state"] != "done"


def _record(folder: Path) -> dict[str, Any]:
    with closing(Ledger(folder / LEDGER_FILE, read_only=True)) as ledger:
        return ledger.run()


def output_option(options: Options) -> OutputPath | None:
    """Return the output that ``--output`` names; None without the option."""
    return None if options.output is None else OutputPath(options.output.absolute())


def _output_here(context: RunContext, record: Mapping[str, Any], url: str) -> OutputPath:
    """Return the local output of an imported run: a working folder if its output is in a bucket."""
    if context.options.output is None and is_output_in(record["output"], url):
        return OutputPath(context.runs.output_in(url))
    return output_of_imported(record, context.options)


def output_of_imported(row: Mapping[str, Any], options: Options) -> OutputPath:
    """Return the output of an imported run: `--output`, or its old name in the current folder.

    Raises:
        InputError: the output's name on the other machine cannot be used here.
    """
    if (from_option := output_option(options)) is not None:
        return from_option
    old_name = Path(row["output"]).name
    if not is_output_name(old_name):
        raise refuse(
            "The name of this run's output cannot be used here",
            where=row["id"],
            found=repr(old_name[:60]),
            fix="name one with --output OUT",
        )
    return OutputPath(Path.cwd() / old_name)


def check_same_form(out: OutputPath, theirs: Path) -> list[Problem]:
    """Return a problem unless both outputs are folders, or files with the same name.

    Args:
        out: the output on this machine.
        theirs: the path of the output on the other machine.
    """
    other_output = OutputPath(theirs)
    if out.is_file == other_output.is_file and (not out.is_file or out.path.name == theirs.name):
        return []
    return [
        Problem(
            "The run in the mirror has another output",
            where=str(out),
            expected=f"a file named {theirs.name}" if other_output.is_file else "a folder",
            found=out.path.name,
            fix=f"name {out.folder / theirs.name if other_output.is_file else out.path.stem}",
        )
    ]


def localize(folder: Path, home: Path, out: Path, url: str, storage: Storage) -> None:
    """Adapt a ledger that was copied from a mirror to this machine.

    Units become pending if their shards are not in the mirror, because this machine cannot copy
    them.

    Args:
        folder: the folder that the ledger was copied to, before it becomes a run of this machine.
        home: the folder that the ledger will be moved to.
        out: the output on this machine.
        url: the address by which this machine reaches the mirror.
        storage: the operations on files.
    """
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        run_record = ledger.run()
        mirrored_names = ledger.mirrored.checksums()
        kept_shards = [
            shard["number"]
            for shard in ledger.shards.all()
            if shard["state"] == "sealed" and shard["name"] in mirrored_names
        ]
        lost_units = [
            unit["number"]
            for unit in ledger.units.all()
            if unit["committed_blocks"] and unit["shard"] not in kept_shards
        ]
        local_folders = {
            source["number"]: local_folder
            for source in ledger.sources()
            if source["kind"] == "local" and (local_folder := _local_folder(source)) is not None
        }
        ledger.move_here(
            {
                "output": str(out),
                "config_path": str(home / RECIPE_FILE),
                "mirror": url,
                "host": hostname(),
            },
            local_folders,
            lost_units,
            len(kept_shards),
        )
        take_snapshot(ledger, storage)
    storage.write_file(folder / RECIPE_FILE, run_record["config_text"].encode())
    storage.sync_file(folder / LEDGER_FILE)


def _local_folder(source: Mapping[str, Any]) -> str | None:
    """Return the folder of a local model on this machine; None to keep the pinned path."""
    try:
        if pinned_path(source).exists():
            return None
        local_folder = Path(read_reference(source["model"]).name).expanduser().absolute()
        local_folder = local_folder.parent if local_folder.is_file() else local_folder
        return str(local_folder) if local_folder.is_dir() else None
    except (OSError, RuntimeError, ValueError, InvalidValue):
        return None
