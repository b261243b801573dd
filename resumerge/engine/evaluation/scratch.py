"""Scratch files, for tensors that one process computes once and reads several times.

`Evaluator` fills the files. They have no names, so the system removes them however the process
ends. They are optional: if the disk is full or does not support them, the tensor is computed again
at each reading.
"""

from __future__ import annotations

import logging
from pathlib import Path

from resumerge.storage import Storage
from resumerge.tensors import ScratchFile

_log = logging.getLogger(__name__)


class Scratch:
    """Scratch files in one folder."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self._storage, self._folder = storage, folder

    def begin(self) -> ScratchFile | None:
        """Return a new, empty file, or None if the disk refuses it."""
        try:
            return ScratchFile(self._storage.scratch(self._folder))
        except OSError as error:
            _log.info("no scratch file: %s", error)
            return None

    def write(self, file: ScratchFile, data: memoryview, offset: int) -> bool:
        """Write at an offset in bytes. Return False if the disk is full or fails."""
        try:
            self._storage.write(file.fd, data, offset)
        except OSError as error:
            _log.info("a scratch file cannot be written: %s", error)
            return False
        return True
