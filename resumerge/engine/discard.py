"""Giving up a run: its output files and its ledger go, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from resumerge.engine.files import PARTIAL
from resumerge.ledger import Ledger
from resumerge.ledger.home import UNBORN
from resumerge.storage import Storage


def discard(ledger: Ledger, folder: Path, out: Path, storage: Storage) -> None:
    """Remove what a run wrote: its shards, the files beside them, and the run's folder.

    Files that the run did not write are left, and the output folder with them. The ledger goes
    last and at once: as long as anything of the run is there, it is known whose it is.
    """
    written = ledger.written_names()
    ledger.close()
    for name in written:
        for path in (out / name, out / (name + PARTIAL)):
            storage.remove(path)
    folders = {str(Path(name).parent) for name in written} - {"."}
    for name in folders:
        if (out / name).is_dir() and not any((out / name).iterdir()):
            (out / name).rmdir()
    for path in (out, *(out / name for name in folders)):
        if path.is_dir():
            storage.sync_folder(path)
    gone = folder.with_name(folder.name + UNBORN)
    storage.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
