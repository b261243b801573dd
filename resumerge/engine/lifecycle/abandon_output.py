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
    """Delete what a run wrote: its shards, the files beside them, and the run's folder.

    Files that the run did not write, files that were edited since, and the output's folder are
    kept. The ledger is deleted last, in one step, because it lists the files of the run.
    """
    remove_written(ledger, out, storage)
    ledger.close()
    remove_folder(folder, storage)


def remove_written(ledger: Ledger, out: Path, storage: Storage) -> None:
    """Delete the shards that a run wrote to its output's folder, and the files beside them."""
    folders = {str(Path(name).parent) for name in ledger.written_names()} - {"."}
    written = written_files(ledger, out)
    for name in sorted(written):
        storage.remove(out / name)
    remove_tasks(out)
    for name in folders:
        if (out / name).is_dir() and not any((out / name).iterdir()):
            (out / name).rmdir()
    for path in (out, *(out / name for name in folders)):
        if path.is_dir():
            storage.sync_folder(path)


def remove_folder(folder: Path, storage: Storage) -> None:
    """Delete a run's folder: one rename makes it no run any more, then its files are deleted."""
    gone = folder.with_name(folder.name + STAGED)
    storage.rename(folder, gone)
    if gone.is_symlink():  # the folder that it leads to is not the run's to delete
        storage.remove(gone)
    else:
        shutil.rmtree(gone, ignore_errors=True)
