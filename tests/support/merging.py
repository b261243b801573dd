"""Merges in this process, and functions that read their output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter, Result
from resumerge.options import Options

if TYPE_CHECKING:
    from torch import Tensor


def merge(models: Path, recipe: str, out: Path, **options: Any) -> Path:
    """Run a recipe that names models by their folders' names.

    Args:
        models: the folder that contains them; the merge runs there.
        recipe: the YAML text.
        options: the fields of `Options`.

    Returns:
        `out`.
    """
    config = out.with_name(out.name + ".yaml")
    config.write_text(recipe)
    options.setdefault("state_dir", out.with_name(out.name + ".state"))
    with working_in(models):
        Session(Options(**options)).run(config, out)
    return out


class Told(Reporter):
    """A reporter that records the notes, the waits, and the end of the work."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.waits: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def waiting(self, text: str) -> None:
        self.waits.append(text)

    def done(self, result: Result) -> None:
        self.notes += ["done", *result.notes]


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Change the working folder inside the context."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Return every tensor of a model folder, by name."""
    from safetensors.torch import load_file

    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def shards_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every shard, by file name."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}
