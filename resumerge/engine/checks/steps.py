"""Whether steps can be done: the libraries that they need are asked."""

from __future__ import annotations

from collections.abc import Iterator

from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Problem
from resumerge.planning.estimates.memory import steps_of_plan
from resumerge.planning.plan import Plan


def check_steps(plan: Plan, stop: StopRequest) -> Iterator[Problem]:
    """What keeps the steps of a plan from being done."""
    for step in steps_of_plan(plan):
        with stop.between_imports():
            found = list(step.problems())
        yield from found
