"""The files beside the shards: config.json, index, tokenizer, model card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from resumerge.backup_names import CARD
from resumerge.engine.context import RunContext
from resumerge.engine.execute.checksums import hash_block
from resumerge.engine.recovery.ownership import has_checksum, rename_to_backup
from resumerge.ledger import Ledger
from resumerge.output import companions
from resumerge.planning.plan import Plan

CONFIG = "config.json"


def model_files(context: RunContext, plan: Plan, out: Path) -> Iterator[tuple[str, bytes | Path]]:
    """The files beside the shards, config.json last: the name, and the bytes or their file."""
    return companions(plan, out.name, context.metadata, offline=context.options.offline)


def write_companions(context: RunContext, plan: Plan, ledger: Ledger, out: Path) -> None:
    """Write the files beside the shards, each whole or not at all, config.json last.

    Where a shard is only in the mirror, config.json is not written: nothing should load the
    incomplete folder as a model.
    """
    noted = ledger.companions()
    incomplete = context.frees_shards or not all((out / s.name).exists() for s in plan.shards)
    for name, content in model_files(context, plan, out):
        if incomplete and name == CONFIG:
            continue
        path = out / name
        data = content if isinstance(content, bytes) else content.read_bytes()
        checksum = hash_block(data).hex()
        ours = {checksum, noted.get(name)}
        if _is_foreign(path, ours) and not _make_way(context, ledger, out, path):
            continue
        ledger.note_companion(name, len(data), checksum)
        context.storage.make_folder(path.parent)
        context.storage.write_file(path, data)


def _is_foreign(path: Path, checksums: set[str | None]) -> bool:
    """Whether there is a file that has none of these checksums: the user put or edited it."""
    exists = path.is_symlink() or path.exists()
    return exists and not any(has_checksum(path, checksum) for checksum in checksums if checksum)


def _make_way(context: RunContext, ledger: Ledger, out: Path, path: Path) -> bool:
    """Keep a file of the user's that has the name of one of ours; whether the name is free then.

    The model card may be the user's. Any other file would change what the model is, and is renamed.
    """
    if path.name == CARD and path.parent == out:
        ledger.event("file_kept", name=path.name)
        context.reporter.note(f"{path} was not written by this run and stays as it is")
        return False
    backup = rename_to_backup(path, context.storage)
    ledger.event("file_set_aside", name=path.name, now=backup.name)
    context.reporter.note(f"{path} was not written by this run; it is renamed to {backup.name}")
    return True
