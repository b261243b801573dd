"""Promise: the memory and the threads that were given last apply to each attempt of a run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from merging import working_in
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.execute.scheduler import Scheduler
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter
from resumerge.errors import Reason, Resumable
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options

RECIPE = "merge_method: passthrough\nmodels: [model: math]\n"
MEMORY = 400_000_000


class Began(Reporter):
    """A reporter that keeps the budget of each attempt, as the supervisor gets it."""

    def __init__(self) -> None:
        self.budgets: list[int] = []

    def began(self, attempt: int, budget: int) -> None:
        self.budgets.append(budget)


def test_what_was_given_last_holds_until_something_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = write_family(tmp_path / "models", TWO_LAYERS)
    config, out = tmp_path / "merge.yaml", tmp_path / "out"
    config.write_text(RECIPE)
    used: list[tuple[int, int, float]] = []

    def stopped(scheduler: Scheduler) -> None:
        governor = scheduler._governor
        used.append((governor.budget, scheduler._execution.threads, governor._memory_wait))
        raise Resumable(Reason.MEMORY, "stopped")

    monkeypatch.setattr(Scheduler, "run", stopped)
    told = Began()

    def attempt(*, resume: bool, **options: Any) -> None:
        session = Session(Options(state_dir=tmp_path / "state", **options), told)
        with working_in(models), pytest.raises(Resumable, match="stopped"):
            session.resume() if resume else session.run(config, out)

    attempt(resume=False, memory=MEMORY, threads=3, memory_wait=5.0)
    attempt(resume=True)
    attempt(resume=True, memory=MEMORY // 2, threads=1)
    attempt(resume=False)
    expected = [MEMORY, MEMORY, MEMORY // 2, MEMORY // 2]
    assert [(budget, threads) for budget, threads, _ in used] == [
        (MEMORY, 3), (MEMORY, 3), (MEMORY // 2, 1), (MEMORY // 2, 1)
    ]  # fmt: skip
    assert [wait for *_, wait in used] == [5.0, *[Options().memory_wait] * 3]
    assert told.budgets == expected
    (folder,) = RunStore(tmp_path / "state").runs()
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        assert [row["budget"] for row in ledger.attempts.all()] == expected
