"""The files beside the shards: config.json, index, tokenizer, model card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from resumerge.engine.changes import adapter_section, card_section, changes_of
from resumerge.engine.context import RunContext
from resumerge.engine.evaluation.input_hashes import content_hashes
from resumerge.engine.recovery.backup import rename_to_backup
from resumerge.engine.recovery.ownership import has_checksum
from resumerge.errors import InputError, Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import Ledger
from resumerge.output import companions
from resumerge.output.model_files import RECIPE_IN_OUTPUT
from resumerge.output_path import CARD
from resumerge.planning.plan import Plan
from resumerge.planning.written.models import models_of
from resumerge.sources.companions import LARGEST


def model_files(
    context: RunContext, plan: Plan, ledger: Ledger, name: str
) -> Iterator[tuple[str, bytes | Path]]:
    """Yield the name and content of each companion, config.json last.

    The content is bytes, or the path of a file to copy. A sweep has companions in the folder of
    each variant, and its own recipe beside these folders.

    Args:
        context: its metadata cache serves to read the reference's remote files; with `offline`,
            none is downloaded.
        plan: the run's plan; for an adapter with undecided ranks, the plan after compaction.
        ledger: the ledger with the measured changes and the hashes of local models, for the cards.
        name: the model's name, for its card; a variant of a sweep has a name of its own.

    Raises:
        Resumable: a file was damaged after the run began.
    """
    source_contents = {row["model"]: row["content"] for row in ledger.sources() if row["content"]}
    offline = context.options.offline
    try:
        for model in models_of(plan):
            model_plan, model_contents = model.plan, source_contents
            unit_changes = changes_of(ledger, model.units)
            changes_section = [] if model.is_stage else card_section(unit_changes)
            if model_plan.adapter is not None:
                changes_section = adapter_section(model_plan.adapter.ranks, unit_changes)
            if plan.variants and not model.is_stage:
                model_contents = content_hashes(plan, ledger, model)
            files = companions(
                model_plan,
                model.name or name,
                context.metadata,
                model_contents,
                section=changes_section,
                offline=offline,
            )
            yield from ((model.folder + file_name, content) for file_name, content in files)
        if plan.variants:
            yield RECIPE_IN_OUTPUT, plan.recipe.text.encode()
    except InputError as error:
        raise Resumable(Reason.SOURCE_CHANGED, f"{error}\nThen resume.") from error


def write_companions(context: RunContext, plan: Plan, ledger: Ledger, out: Path) -> None:
    """Write the companions, config.json last; no partly written file gets its final name.

    If a shard is only in the mirror, nothing is written, because the folder would look like a
    complete model.
    """
    if context.frees_shards or not all((out / shard.name).exists() for shard in plan.shards):
        return
    noted_checksums = ledger.companions.checksums()
    for name, content in model_files(context, plan, ledger, out.name):
        path = out / name
        companion_bytes = content if isinstance(content, bytes) else _read(content)
        checksum = hash_block(companion_bytes).hex()
        our_checksums = {checksum, noted_checksums.get(name)}
        if _is_foreign(path, our_checksums) and not _make_way(context, ledger, out, path):
            continue
        ledger.companions.record(name, len(companion_bytes), checksum)
        context.storage.make_folder(path.parent)
        context.storage.write_file(path, companion_bytes)


def _read(path: Path) -> bytes:
    try:
        return read_foreign(path, LARGEST)
    except UnfitFile as error:
        raise Resumable(Reason.SOURCE_CHANGED, f"{path} changed during the run: {error}") from error


def _is_foreign(path: Path, checksums: set[str | None]) -> bool:
    """Return whether a file exists and has none of these checksums: the user made or edited it."""
    file_exists = path.is_symlink() or path.exists()
    return file_exists and not any(
        has_checksum(path, checksum) for checksum in checksums if checksum
    )


def _make_way(context: RunContext, ledger: Ledger, out: Path, path: Path) -> bool:
    """Keep a user's file that has a companion's name; return whether the companion may be written.

    A user's model card stays in place. Any other file would change the model, so it gets a backup
    name.
    """
    if path.name == CARD and path.parent == out:
        ledger.events.add(EventKind.FILE_KEPT, name=path.name)
        context.reporter.note(f"{path} was not written by this run and stays unchanged")
        return False
    backup = rename_to_backup(path, context.storage)
    ledger.events.add(EventKind.FILE_SET_ASIDE, name=path.name, now=backup.name)
    context.reporter.note(f"{path} was not written by this run; it is renamed to {backup.name}")
    return True
