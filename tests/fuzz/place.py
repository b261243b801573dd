"""The folder that all cases work in, and its contents as each kind of case has prepared them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


class Place:
    """A folder `work` in which commands are called, with the same path for every case.

    Args:
        folder: a new and empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self._templates = folder / "templates"
        self._templates.mkdir()

    def prepare(self, name: str, make: Callable[[Path], None]) -> None:
        """Keep what `make` writes into the folder, under a name."""
        self._empty()
        make(self.work)
        os.chdir(self._templates)
        self.work.rename(self._templates / name)

    def restore(self, name: str) -> None:
        """Put into the folder what was prepared under a name, and nothing else."""
        self._empty()
        shutil.copytree(self._templates / name, self.work, symlinks=True, dirs_exist_ok=True)

    def _empty(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        os.chdir(self.work)
