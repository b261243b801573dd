"""The folder that everything happens in, and how a kind of case gets it as it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


class Place:
    """A folder `work` in which commands are called, with the same path for every case.

    Args:
        folder: new, and empty.
    """

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self._templates = folder / "templates"
        self._templates.mkdir()

    def prepare(self, name: str, make: Callable[[Path], None]) -> None:
        """Remember what `make` leaves in the folder."""
        self._empty()
        make(self.work)
        os.chdir(self._templates)
        self.work.rename(self._templates / name)

    def restore(self, name: str) -> None:
        """Have in the folder what was prepared."""
        self._empty()
        shutil.copytree(self._templates / name, self.work, symlinks=True, dirs_exist_ok=True)

    def _empty(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        os.chdir(self.work)
