"""The renaming of a user's file whose name an output file needs."""

from __future__ import annotations

import os
from pathlib import Path

from resumerge.backup_names import backup_name
from resumerge.storage import Storage


def rename_to_backup(path: Path, storage: Storage) -> Path:
    """Rename a file that the run did not write to a free backup name (`backup_name`).

    Returns:
        the new path.
    """
    backup = path.with_name(backup_name(path.name, lambda n: os.path.lexists(path.with_name(n))))
    storage.rename(path, backup)
    return backup
