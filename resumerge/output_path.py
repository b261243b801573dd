"""Where a run writes its model: into a folder of its own, or to one file in a folder of the user's.

The name alone decides, so that a run has the same form on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SUFFIX = ".safetensors"
"""An output with this suffix is one file."""


@dataclass(frozen=True)
class OutputPath:
    """The output as the user names it.

    Args:
        path: of a folder; with the suffix `SUFFIX`, of a file.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def is_file(self) -> bool:
        """Whether the weights are all that is written, as one file."""
        return self.path.suffix == SUFFIX

    @property
    def folder(self) -> Path:
        """The folder in which the run's files have their names. That of one file is the user's."""
        return self.path.parent if self.is_file else self.path

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.path.stem if self.is_file else self.path.name
