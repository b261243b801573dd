"""Renaming of a user's file that has the name of an output file, to its backup name."""

from __future__ import annotations

import os
from pathlib import Path

from resumerge.backup_names import backup_name
from resumerge.storage import Storage


def rename_to_backup(path: Path, storage: Storage) -> Path:
    """Rename a file that the run did not write, so that its name is free; see `backup_name`.

    Returns:
        The new path.
    """
    backup = path.with_name(backup_name(path.name, lambda n: os.path.lexists(path.with_name(n))))
    storage.rename(path, backup)
    return backup
