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

    Files that the run did not write, and those that were edited since, are kept, and so is the
    output's folder. The ledger is deleted last, in one step: it names what belongs to the run.
    """
    remove_written(ledger, out, storage)
    ledger.close()
    remove_folder(folder, storage)


def remove_written(ledger: Ledger, out: Path, storage: Storage) -> None:
    """Delete what a run wrote to its output's folder: its shards, and the files beside them."""
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
    """Delete a run's folder, which is no run any more in one step."""
    gone = folder.with_name(folder.name + STAGED)
    storage.rename(folder, gone)
    if gone.is_symlink():  # what it leads to belongs to somebody
        storage.remove(gone)
    else:
        shutil.rmtree(gone, ignore_errors=True)
