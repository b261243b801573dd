"""Finished models: on this machine, in a mirror, or with files in both places."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from resumerge.engine.checks.paths import check_output, check_output_path
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.abandon_output import remove_written
from resumerge.engine.lifecycle.adopt import AdoptedRun
from resumerge.engine.lifecycle.fetch_model import fetch_model, fetched_names, is_made_of
from resumerge.engine.lifecycle.find import FinishedInMirror
from resumerge.engine.lifecycle.import_run import check_same_form
from resumerge.engine.mirror_session.checks import SHOWN, check_apart, refuse_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.recovery.damaged_sources import find_damage
from resumerge.engine.reporter import Result
from resumerge.engine.resources.lock import output_lock, remove_stale_lock
from resumerge.engine.shards.checksums import file_checksum
from resumerge.errors import InputError, Resumable
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import is_output_in, named_output
from resumerge.mirror.manifest import (
    Manifest,
    missing_files,
    read_manifest,
    remove_metadata,
)
from resumerge.mirror.names import MANIFEST_FILE
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.state import FINISHED, MirrorState
from resumerge.output_path import OutputPath, is_weights
from resumerge.planning import Plan


def is_finished(context: RunContext, run: AdoptedRun, plan: Plan) -> bool:
    """Return whether a run is done, and every file that it wrote still exists.

    Each shard must have its size and header on this machine, or be in the mirror. Every file in the
    mirror must have its size. Companions on this machine must only exist, because the user may have
    edited them.

    Raises:
        InputError: the mirror cannot be used.
        Resumable: the mirror cannot be read now.
    """
    record = run.ledger.run()
    if record["state"] != "done" or (run.mirror and run.mirror.url != record["mirror"]):
        return False
    return _is_complete(context, run, plan) and not find_damage(plan, run.ledger, context.metadata)


def _is_complete(context: RunContext, run: AdoptedRun, plan: Plan) -> bool:
    folder = run.out.folder
    files = context.shard_files(plan, folder)
    missing_shards = [
        shard for shard in plan.shards if not files.has_size_and_header(shard, files.final(shard))
    ]
    companion_names = run.ledger.companions.checksums()
    if run.ledger.shards.open() or not all((folder / name).is_file() for name in companion_names):
        return False
    if run.mirror is None:
        return not missing_shards
    mirrored_names = run.ledger.mirrored.checksums()
    return all(shard.name in mirrored_names for shard in missing_shards) and _is_complete_in(
        run.mirror, plan, run.ledger
    )


def _is_complete_in(mirror: MirrorSession, plan: Plan, ledger: Ledger) -> bool:
    """Return whether the mirror has this run's manifest and every file; report missing files."""
    mirror.check_mounted()
    manifest, sizes = retry_store(mirror.store, lambda: read_manifest(mirror.store)), mirror.files()
    missing_names = {shard.name for shard in plan.shards if sizes.get(shard.name) != shard.nbytes}
    if manifest is None or manifest.run != ledger.run()["id"]:
        missing_names.add(MANIFEST_FILE)
    else:
        missing_names.update(missing_files(manifest, sizes))
    if missing_names:
        shown_names = sorted(missing_names)[:SHOWN]
        ledger.events.add(EventKind.MIRROR_LACKS, mirror=mirror.url, names=shown_names)
        mirror.note(f"The {mirror.store.place} lacks {', '.join(shown_names)}")
    return not missing_names


def report_finished(context: RunContext, run: AdoptedRun) -> Result:
    """Report that a run is finished; with ``--bring-back``, copy missing files from the mirror.

    Raises:
        InputError: a file cannot be copied from the mirror.
        Resumable: the mirror cannot be read now.
    """
    remove_stale_lock(run.out)
    mirror = run.mirror
    if mirror is not None and context.options.bring_back:
        manifest = retry_store(mirror.store, lambda: read_manifest(mirror.store))
        if manifest is not None:
            with output_lock(run.out):
                for name in fetch_model(mirror, manifest, run.out, context.storage):
                    if not is_weights(name):
                        companion_path = run.out.folder / name
                        checksum = file_checksum(companion_path)
                        run.ledger.companions.record(name, companion_path.stat().st_size, checksum)
    mirror_url = mirror.url if mirror else None
    out = named_output(run.out.path, mirror_url)
    result = Result(run.folder.name, out, run.ledger.path, already_done=True, mirror=mirror_url)
    context.reporter.done(result)
    return result


def use_finished_mirror(context: RunContext, found: FinishedInMirror) -> Result:
    """Report a finished model in a mirror, made by a run that this machine does not have.

    Raises:
        InputError: the model is made of another recipe, or cannot be copied here.
        Resumable: the mirror cannot be read now.
    """
    mirror, manifest, out = context.mirror, found.manifest, found.out
    assert mirror is not None
    options = context.options
    if found.recipe is not None and not is_made_of(manifest, found.recipe, options, mirror):
        raise refuse_mirror(mirror, MirrorState(FINISHED, {}, manifest))
    original_name = Path(manifest.output or manifest.run)
    if out is not None and (problems := check_same_form(out, original_name)):
        raise InputError(problems)
    if options.bring_back:
        out = out or OutputPath(Path.cwd() / original_name)
        problems = [*check_output_path(out), *check_output(out, fetched_names(manifest, out))]
        if problems:
            raise InputError(problems)
    return report_finished_model(context, mirror, manifest, out)


def report_finished_elsewhere(
    context: RunContext, run: AdoptedRun, mirror: MirrorSession, manifest: Manifest
) -> Result:
    """Report a run of this machine that another machine has finished.

    If the run's output is in a bucket, the files that this machine wrote for the run are removed.
    Otherwise ``--bring-back`` copies the model to the output.

    Raises:
        InputError: the model cannot be copied.
        Resumable: the mirror cannot be read now.
    """
    if not is_output_in(run.out.path, mirror.url):
        return report_finished_model(context, mirror, manifest, run.out)
    if run.out.folder.is_dir():
        with output_lock(run.out):
            remove_written(run.ledger, run.out.folder, context.storage)
        context.runs.remove_unused(run.out.path)
    return report_finished_model(context, mirror, manifest, None)


def report_finished_model(
    context: RunContext, mirror: MirrorSession, manifest: Manifest, out: OutputPath | None
) -> Result:
    """Report a finished model in a mirror; with ``--bring-back``, copy it to `out`.

    Args:
        context: its options decide whether the model is copied; its reporter is given the result.
        mirror: the session with the mirror of the model; files of metadata that are left there are
            removed.
        manifest: the manifest of the finished model, which names its run and its files.
        out: the output on this machine; None if there is none.

    Raises:
        InputError: the model cannot be copied.
        Resumable: the mirror cannot be read now.
    """
    with suppress(InputError, Resumable):  # the other machine may have left metadata
        retry_store(mirror.store, lambda: remove_metadata(mirror.store))
    if context.options.bring_back and out is not None:
        if problems := check_apart(out, mirror):
            raise InputError(problems)
        context.storage.make_folder(out.folder)
        with output_lock(out):
            fetch_model(mirror, manifest, out, context.storage)
    mirror_place = mirror.store.local_folder or mirror.url
    model_place = out.path if out is not None and out.path.exists() else mirror_place
    result = Result(manifest.run, model_place, None, already_done=True, mirror=mirror.url)
    context.reporter.done(result)
    if out is not None and model_place == mirror_place:
        context.reporter.note(f"{out.path} was not made; add --bring-back to copy the model to it")
    return result
