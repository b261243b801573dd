"""A storage that records the order of operations on files, by their names."""

from __future__ import annotations

from pathlib import Path

from resumerge.storage import Storage


class Ordered(Storage):
    """A storage whose `done` lists operations: ``sync a``, ``rename to b``, ``remove c``."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def sync_file(self, path: Path) -> None:
        super().sync_file(path)
        self.done.append(f"sync {path.name}")

    def sync_folder(self, path: Path) -> None:
        Storage().sync_folder(path)  # which is no file's

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.done.append(f"rename to {target.name}")

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.done.append(f"remove {path.name}")

    def of(self, name: str) -> list[str]:
        """Return the operations on files with this in their names."""
        return [done for done in self.done if name in done]
