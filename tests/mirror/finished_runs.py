"""A machine with a finished run and its mirror, worked on in this process."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from made_up_mirrors import RECIPE
from merging import working_in

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Result
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options


class Bed:
    """A machine with models, a recipe and a finished run; its mirror is `mirror`.

    Args:
        folder: the folder of the machine.
        models: the folder of the models, which are copied to the machine.
    """

    def __init__(self, folder: Path, models: Path) -> None:
        self.work, self.mirror = folder / "work", folder / "mirror"
        shutil.copytree(models, self.work)
        (self.work / "recipe.yaml").write_text(RECIPE)
        self.out, self.state = self.work / "out", folder / "state"

    def run(self, **options: Any) -> Result:
        given = {"state_dir": self.state, "shard_size": 8000, "mirror": str(self.mirror), **options}
        with working_in(self.work):
            return Session(Options(**given)).run(self.work / "recipe.yaml", self.out)

    def resume(self, wanted: Path | str, **options: Any) -> Result:
        with working_in(self.work):
            return Session(Options(**{"state_dir": self.state, **options})).resume(str(wanted))

    def forget(self) -> None:
        """Remove the state and the output, as on another machine that knows the mirror alone."""
        shutil.rmtree(self.state)
        shutil.rmtree(self.out)

    def events(self) -> list[str]:
        """Return the kinds of all events of the run."""
        (folder,) = RunStore(self.state).runs()
        with closing(Ledger(folder / "ledger.db", read_only=True)) as ledger:
            return [event["kind"] for event in ledger.events.all()]
