"""A run whose shards are merged by tasks, in this process."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path

from merging import merge, working_in

from resumerge.engine.cluster.exchange.folder import FolderEndpoint
from resumerge.engine.cluster.outcomes import Finished, Node, Outcome
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.cluster.task import ShardTask, run_task
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.published import adopt_published
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import TASKS, ShardFiles
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.options import Options
from resumerge.planning import Plan
from resumerge.planning.versions import Versions
from resumerge.recipe import load_recipe
from resumerge.storage import Storage

TIES = """
merge_method: {method}
base_model: base
models:
  - {{model: math, parameters: {{density: 0.5, weight: 0.6}}}}
  - {{model: code, parameters: {{density: 0.5, weight: 0.4}}}}
"""


STAGES = """
name: first
merge_method: linear
models: [{model: math, parameters: {weight: 1}}, {model: code, parameters: {weight: 1}}]
---
merge_method: ties
base_model: base
models:
  - {model: first, parameters: {density: 0.5, weight: 1}}
  - {model: code, parameters: {density: 0.5, weight: 1}}
"""


RECIPES = {
    "ties": TIES.format(method="ties"),
    "dare_ties": TIES.format(method="dare_ties"),
    "copies": "merge_method: passthrough\nmodels: [{model: math}]\n",
    "stages": STAGES,
}


class Shards:
    """A run of one recipe, and tasks for its shards."""

    def __init__(self, models: Path, recipe: str, folder: Path) -> None:
        self.whole = merge(models, recipe, folder / "whole", shard_size=16_000)
        self.out = folder / "out"
        self.attempt = self.out / TASKS / "0123456789abcdef"
        self.attempt.mkdir(parents=True)
        with working_in(models):
            session = Session(Options(shard_size=16_000, state_dir=folder / "planned"))
            self.plan: Plan = session.plan(load_recipe(folder / "whole.yaml"))
        [ledger] = (folder / "whole.state").glob(f"*/{LEDGER_FILE}")
        self.ledger = Ledger(ledger)
        self.measurements = self.ledger.units.measurements()
        self.ledger.units.forget(range(len(self.plan.units)), "pending_again")
        self.fingerprint = self.ledger.run()["fingerprint"]

    def compute(self, number: int) -> Finished:
        outcome = self.outcome(number)
        assert isinstance(outcome, Finished), outcome
        return outcome

    def outcome(self, number: int, stop: StopRequest | None = None) -> Outcome:
        plan = shard_plan(self.plan, number)
        task = ShardTask(
            f"t{number}",
            number,
            self.plan.shards[number].first,
            FolderEndpoint(self.attempt, f"t{number}", number, self.out),
            self.fingerprint,
            Versions.of_plan(plan),
            pickle.dumps(plan),
            Options(threads=2),
        )
        return run_task(task, Node("", "here"), stop or StopRequest())

    def adopt(self) -> list[int]:
        with closing(ShardFiles(self.plan, self.out, Storage())) as files:
            return adopt_published(self.plan, self.ledger, files)
