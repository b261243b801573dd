"""Promise: the needs of a run are estimated once; checks, `plan` and the run read the estimate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from merging import merge, working_in
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.engine.execute import local_computation
from resumerge.engine.execute.scheduler import Scheduler
from resumerge.engine.opening import pinned_plan
from resumerge.engine.resources.governor import Governor
from resumerge.errors import InputError
from resumerge.planning import Estimate, Plan, estimate
from resumerge.planning.plan import Unit

RECIPE = """
merge_method: ties
base_model: base
models: [{model: math, parameters: {weight: 0.5, density: 0.5}}]
"""
MADE_UP, SCRATCH, TRAFFIC, REDUCTIONS = 123_000_000, 77_000_000, 5 << 60, 98_765
ASKING = ("planning/estimates/", "engine/checks/", "documents/", "budget.py")
"""Parts of paths of the modules in which only `estimate` may iterate over a plan's units."""


class Spy:
    """A replacement of `estimate` where plans are made, which changes the result.

    Attributes:
        walks: the functions in `ASKING` that iterated over the units of an estimated plan.
    """

    def __init__(self, patch: pytest.MonkeyPatch, **changed: int) -> None:
        self.made: list[Estimate] = []
        self.walks: list[str] = []
        self._changed = changed
        patch.setattr(pinned_plan, "estimate", self)

    def __call__(self, plan: Plan, *words: Any) -> Estimate:
        walks = self.walks

        class Watched(tuple[Unit, ...]):
            def __iter__(self) -> Iterator[Unit]:
                for frame in (sys._getframe(1), sys._getframe(2)):  # beneath may be `Plan.nodes`
                    if any(place in frame.f_code.co_filename for place in ASKING):
                        walks.append(frame.f_code.co_name)
                return super().__iter__()

        object.__setattr__(plan, "units", Watched(plan.units))
        found = estimate(plan, *words)
        memory = {key: n for key, n in self._changed.items() if hasattr(found.memory, key)}
        others = {key: n for key, n in self._changed.items() if key not in memory}
        self.made.append(replace(found, memory=replace(found.memory, **memory), **others))
        return self.made[-1]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path / "models", LLAMA)


def test_a_run_makes_one_estimate_by_one_pass_over_the_units(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    merge(models, RECIPE, tmp_path / "out")
    assert len(spy.made) == 1
    assert spy.walks == ["estimate"]


def test_plan_makes_one_and_tells_its_numbers(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = planned(models, tmp_path)
    spy = Spy(monkeypatch, process=MADE_UP, scratch=SCRATCH, download=17)
    told = planned(models, tmp_path)
    [made] = spy.made
    assert spy.walks == ["estimate"]
    assert told["disk"]["needed"] == made.disk == before["disk"]["needed"] + SCRATCH
    assert told["download"]["bytes"] == 17
    assert told["memory"]["predicted_peak_rss"] == made.memory.need(2).peak_rss > MADE_UP


def planned(models: Path, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    with working_in(models):
        return resumerge.plan(tmp_path / "recipe.yaml", tmp_path / "out", threads=2)


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"scratch": 1 << 62}, "disk is too small for the output"),
        ({"process": 1 << 62}, "memory budget is too small"),
    ],
)
def test_checks_compare_its_numbers_with_what_the_machine_has(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, int],
    refused: str,
) -> None:
    Spy(monkeypatch, **changed)
    with pytest.raises(InputError, match=refused):
        merge(models, RECIPE, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_governor_and_the_scheduler_have_their_limits_from_it(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spy(monkeypatch, traffic=TRAFFIC, reductions=REDUCTIONS, scratch=SCRATCH, largest_block=4321)
    governors: list[Governor] = []
    schedulers: list[Scheduler] = []

    def governor(*words: Any, **more: Any) -> Governor:
        governors.append(Governor(*words, **more))
        return governors[-1]

    def scheduler(*words: Any) -> Scheduler:
        schedulers.append(Scheduler(*words))
        return schedulers[-1]

    monkeypatch.setattr(local_computation, "Governor", governor)
    monkeypatch.setattr(local_computation, "Scheduler", scheduler)
    merge(models, RECIPE, tmp_path / "out")
    [watching], [scheduling] = governors, schedulers
    assert watching.need.traffic == TRAFFIC
    assert watching.need.shared >= REDUCTIONS
    assert scheduling._feed._reductions_limit == REDUCTIONS
    assert scheduling._feed._spills
    assert scheduling._largest_block == 4321
