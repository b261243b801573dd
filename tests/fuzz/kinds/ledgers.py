"""Ledgers of an unfinished and a finished run."""

from __future__ import annotations

from pathlib import Path
from random import Random

from fuzz import tiny_files
from fuzz.changes.databases import change_database
from fuzz.kinds.base import MERGE, Commands, Kind, continues
from fuzz.runs import DONE, HALF, make_finished, make_unfinished
from resumerge.ledger.run_store import RunStore

RECIPE = (
    "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: ./base}, {model: ./other}]\n"
)


class Ledgers(Kind):
    """Two models and two runs, one of whose ledgers is changed, with or without its snapshot."""

    def make(self, work: Path) -> None:
        for seed, name in enumerate(("base", "other")):
            tiny_files.write(work / name, tiny_files.model_files(seed))
        (work / "recipe.yaml").write_text(RECIPE)
        make_unfinished("recipe.yaml")
        make_finished("recipe.yaml")

    def change(self, draw: Random, work: Path) -> Path:
        self._run = draw.choice((HALF, HALF, DONE))
        path = RunStore().find(self._run) / "ledger.db"
        if draw.random() < 0.5:
            path.with_name("ledger.snapshot.db").unlink(missing_ok=True)
        change_database(draw, path)
        return path

    def commands(self, draw: Random) -> Commands:
        if draw.random() < 0.2:
            again = ["--restart"] * draw.randrange(2)
            return [["run", "recipe.yaml", self._run, *MERGE, *again]]
        return continues(draw, self._run)
