"""Promise: a run whose method has other code is refused; if the method failed, it starts over."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from made_up_ledgers import make_ledger
from made_up_plans import llama, plan

from resumerge.engine.checks.drift import check_source_drift, is_corrected_method
from resumerge.engine.context import RunContext
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Reason
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.ledger.validity import RECIPE_TEXT, text_digest
from resumerge.options import Options
from resumerge.planning import estimate, fingerprint, fingerprint_parts
from resumerge.storage import Storage

PLAN = plan("merge_method: passthrough\nmodels: [{model: a}]\n", llama("a", 1))

Stops = list[tuple[int, str, dict[str, str]]]

STOPS: dict[str, Stops] = {
    "it was killed": [],
    "a disk was full": [(1, "stopped", {"cause": "disk", "reason": "no space"})],
    "a person stopped it": [(1, "stopped", {"reason": "Ctrl-C"})],
}

FAILED: Stops = [(1, "stopped", {"cause": Reason.METHOD, "reason": "an error in your method"})]


class Run:
    """A run of `PLAN`, in a ledger.

    Args:
        other: whether it began with other code of the method.
    """

    def __init__(
        self, home: Path, stops: Stops, *, other: bool, state: str = "interrupted"
    ) -> None:
        parts = fingerprint_parts(PLAN) | {RECIPE_TEXT: text_digest("")}
        if other:
            parts |= {"method": {"name": "passthrough", "code": "as it was"}}
        columns = {"fingerprint": fingerprint(parts), "fingerprint_parts": json.dumps(parts)}
        self._ledger = make_ledger(home, [], events=stops, state=state, **columns) / LEDGER_FILE
        runs = RunStore(home)
        self._context = RunContext(Options(), Reporter(), Storage(), StopRequest(), runs)

    def starts_over(self) -> bool:
        with closing(Ledger(self._ledger)) as ledger:
            return is_corrected_method(ledger.run(), PLAN, ledger)

    def check(self) -> None:
        with closing(Ledger(self._ledger)) as ledger:
            check_source_drift(self._context, ledger.run(), PLAN, estimate(PLAN), ledger)


@pytest.mark.parametrize("why", STOPS)
def test_a_run_that_stopped_for_another_reason(tmp_path: Path, why: str) -> None:
    run = Run(tmp_path, STOPS[why], other=True)
    assert not run.starts_over()
    with pytest.raises(InputError, match="The program has changed since the run was created"):
        run.check()


def test_a_run_that_is_finished(tmp_path: Path) -> None:
    run = Run(tmp_path, FAILED, other=True, state="done")
    assert not run.starts_over()
    with pytest.raises(InputError, match="The program has changed since the run was created"):
        run.check()


@pytest.mark.parametrize("other", [False, True])
def test_a_run_whose_method_failed(tmp_path: Path, other: bool) -> None:
    run = Run(tmp_path, FAILED, other=other)
    assert run.starts_over() == other
    with pytest.raises(InputError, match="The ledger does not match its recipe"):
        run.check()  # whose next comparison is of the tensors, which are made up
