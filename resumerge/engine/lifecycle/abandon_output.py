"""Abandon a run: delete its output files and its ledger, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from resumerge.engine.recovery.ownership import written_files
from resumerge.engine.recovery.published import remove_tasks
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import STAGED
from resumerge.storage import Storage


def abandon_output(ledger: Ledger, folder: Path, out: Path, storage: Storage) -> None:
    """Delete a run's shards, its companions and its ledger's folder.

    Three things are kept: files that the run did not write, files that were edited since, and the
    output's folder. The ledger lists the files of the run, so it is deleted last, in one step.
    """
    remove_written(ledger, out, storage)
    ledger.close()
    remove_folder(folder, storage)


def remove_written(ledger: Ledger, out: Path, storage: Storage) -> None:
    """Delete the shards and companions that a run wrote to its output's folder."""
    subfolders = {str(Path(name).parent) for name in ledger.written_names()} - {"."}
    written_names = written_files(ledger, out)
    for name in sorted(written_names):
        storage.remove(out / name)
    remove_tasks(out)
    for name in subfolders:
        if (out / name).is_dir() and not any((out / name).iterdir()):
            (out / name).rmdir()
    for path in (out, *(out / name for name in subfolders)):
        if path.is_dir():
            storage.sync_folder(path)


def remove_folder(folder: Path, storage: Storage) -> None:
    """Delete a run's folder: rename it, so that it is no longer a run, then delete its files."""
    renamed_folder = folder.with_name(folder.name + STAGED)
    storage.rename(folder, renamed_folder)
    if renamed_folder.is_symlink():  # the target of the link does not belong to the run
        storage.remove(renamed_folder)
    else:
        shutil.rmtree(renamed_folder, ignore_errors=True)
