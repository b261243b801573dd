"""Merges in processes of their own, in a cgroup or not."""

from __future__ import annotations

import filecmp
import subprocess
import sys
from pathlib import Path
from typing import Any

from cgroups import TestCgroup, drop_cache

import resumerge


class Merging:
    """One merge in a working folder with `base`, `math` and `code`."""

    def __init__(self, models: Path, folder: Path, recipe: str) -> None:
        self.models, self.out, self.state = models, folder / "out", folder / "state"
        folder.mkdir()
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(recipe)

    def command(self, *options: str) -> list[str]:
        program = [sys.executable, "-m", "resumerge", "run", str(self.recipe), str(self.out)]
        return [*program, "--state-dir", str(self.state), *options]

    def run(self, group: TestCgroup | None, *options: str) -> float:
        """Drop the models from the page cache, merge, and return the seconds of merging."""
        drop_cache(self.models)
        command = self.command(*options)
        place: dict[str, Any] = {"cwd": self.models, "stderr": subprocess.PIPE}
        process = group.start(command, **place) if group else subprocess.Popen(command, **place)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        return float(self.status()["merging_s"])

    def committed(self) -> int:
        """Return the bytes of output that are committed so far."""
        runs = resumerge.status(state_dir=self.state)["runs"] if self.state.exists() else []
        return int(runs[0]["bytes"]["committed"]) if runs else 0

    def status(self) -> dict[str, Any]:
        return resumerge.status(state_dir=self.state)["runs"][0]

    def same_shards_as(self, other: Merging) -> bool:
        """Return whether both merges wrote the same shards, byte for byte."""
        mine, theirs = (sorted(m.out.glob("*.safetensors")) for m in (self, other))
        return [path.name for path in mine] == [path.name for path in theirs] and all(
            filecmp.cmp(a, b, shallow=False) for a, b in zip(mine, theirs)
        )
