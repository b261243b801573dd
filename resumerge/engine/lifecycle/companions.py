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
    """Yield (name, bytes or the file with them) of the files beside the shards, config.json last.

    A sweep has them in the folder of each variant, and its own recipe beside these folders.

    Args:
        context: the run's context.
        plan: the plan.
        ledger: the run's ledger.
        name: the model's name.

    Raises:
        Resumable: a file was damaged after the run began.
    """
    contents = {row["model"]: row["content"] for row in ledger.sources() if row["content"]}
    offline = context.options.offline
    try:
        for model in models_of(plan):
            part, model_contents = model.plan, contents
            changes = changes_of(ledger, model.units)
            section = [] if model.is_stage else card_section(changes)
            if part.adapter is not None:
                section = adapter_section(part.adapter.ranks, changes)
            if plan.variants and not model.is_stage:
                model_contents = content_hashes(plan, ledger, model)
            files = companions(
                part,
                model.name or name,
                context.metadata,
                model_contents,
                section=section,
                offline=offline,
            )
            yield from ((model.folder + file, content) for file, content in files)
        if plan.variants:
            yield RECIPE_IN_OUTPUT, plan.recipe.text.encode()
    except InputError as error:
        raise Resumable(Reason.SOURCE_CHANGED, f"{error}\nThen resume.") from error


def write_companions(context: RunContext, plan: Plan, ledger: Ledger, out: Path) -> None:
    """Write the files beside the shards, each whole or not at all, config.json last.

    If a shard is only in the mirror, nothing is written: the folder would look like a model.
    """
    if context.frees_shards or not all((out / s.name).exists() for s in plan.shards):
        return
    noted = ledger.companions.checksums()
    for name, content in model_files(context, plan, ledger, out.name):
        path = out / name
        data = content if isinstance(content, bytes) else _read(content)
        checksum = hash_block(data).hex()
        our_checksums = {checksum, noted.get(name)}
        if _is_foreign(path, our_checksums) and not _make_way(context, ledger, out, path):
            continue
        ledger.companions.note(name, len(data), checksum)
        context.storage.make_folder(path.parent)
        context.storage.write_file(path, data)


def _read(path: Path) -> bytes:
    try:
        return read_foreign(path, LARGEST)
    except UnfitFile as error:
        raise Resumable(Reason.SOURCE_CHANGED, f"{path} changed during the run: {error}") from error


def _is_foreign(path: Path, checksums: set[str | None]) -> bool:
    """Return whether a file exists that the user made or edited: it has none of these checksums."""
    exists = path.is_symlink() or path.exists()
    return exists and not any(has_checksum(path, checksum) for checksum in checksums if checksum)


def _make_way(context: RunContext, ledger: Ledger, out: Path, path: Path) -> bool:
    """Keep a user's file whose name a companion has; return whether the companion may be written.

    A model card of the user's stays in place. Any other file would change the model, so it is
    renamed to its backup name.
    """
    if path.name == CARD and path.parent == out:
        ledger.events.add(EventKind.FILE_KEPT, name=path.name)
        context.reporter.note(f"{path} was not written by this run and stays unchanged")
        return False
    backup = rename_to_backup(path, context.storage)
    ledger.events.add(EventKind.FILE_SET_ASIDE, name=path.name, now=backup.name)
    context.reporter.note(f"{path} was not written by this run; it is renamed to {backup.name}")
    return True
