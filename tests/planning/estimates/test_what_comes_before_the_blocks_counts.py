"""Promise: steps, which come before the blocks, count in memory and in time, each once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

from made_up_plans import LINEAR, plan, vectors

from resumerge.host.speed import Speed
from resumerge.planning import Plan, estimate
from resumerge.planning.estimates.memory import PROMPTS_RSS, MemoryNeed
from resumerge.planning.estimates.time import REFERENCE_COMPUTE
from resumerge.tensors import Computed

MB = 1_000_000


def step(nbytes: int, planning: int, working: int, seconds: float = 3.0) -> Any:
    """Return a step whose memory grows with the threads, and whose time shrinks."""
    return Mock(
        nbytes=nbytes,
        planning_bytes=planning,
        working_bytes=lambda threads: working * threads,
        seconds=lambda threads: seconds / threads,
        libraries={},
        tensors=lambda part: (),
        reads=lambda: iter(()),
    )


def with_steps(*steps: Any) -> Plan:
    """Return a plan with a gate of each step, and a second gate of the first step."""
    whole = plan(LINEAR, *(vectors(name, 10, 20, 30) for name in "ab"))
    gates = [Computed.of("gate", (10,), each, 0) for each in (*steps, *steps[:1])]
    units = [*whole.units]
    for number, gate in enumerate(gates):
        units[number] = replace(units[number], expression=gate)
    return replace(whole, units=tuple(units))


def test_results_are_held_for_all_blocks() -> None:
    one, two = step(5 * MB, 0, 0), step(7 * MB, 0, 0)
    found = estimate(with_steps(one, two))
    assert found.steps == {one, two}
    assert found.memory.across_blocks == 12 * MB
    plain = estimate(with_steps())
    assert plain.steps == frozenset() and plain.memory.across_blocks == 0
    assert found.memory.process - plain.memory.process < PROMPTS_RSS + 1000
    assert found.memory.process > plain.memory.process + PROMPTS_RSS - 10_000


def test_the_largest_step_counts_while_it_is_planned_or_done() -> None:
    """A step's memory does not add to the memory of blocks, because all blocks come later."""
    memory = estimate(with_steps(step(0, 900 * MB, 10 * MB), step(0, 1, 200 * MB))).memory
    for threads, largest in ((1, 900), (4, 900), (5, 1000)):
        need = memory.need(threads)
        assert (need.steps, need.least_steps) == (largest * MB, 900 * MB)
        assert need.peak_rss == need.process + largest * MB
        assert need.least_rss == need.process + 900 * MB


def test_blocks_that_take_more_than_steps_decide() -> None:
    need = MemoryNeed(
        process=1, shared=10, least=20, blocks=40, traffic=0, steps=49, least_steps=29
    )
    assert (need.peak_rss, need.least_rss) == (51, 31)
    more = replace(need, steps=51, least_steps=31)
    assert (more.peak_rss, more.least_rss) == (52, 32)


def test_steps_take_their_time_before_the_blocks() -> None:
    plain, found = (estimate(with_steps(*each)).time for each in ((), (step(0, 0, 0, 60.0),)))
    speed = Speed(read=1e12, write=1e12, compute=REFERENCE_COMPUTE / 2)
    (before, _), (after, basis) = (each.seconds(2, speed) for each in (plain, found))
    assert after - before == 60.0, "on two threads of a machine that is half as quick"
    assert "making gates takes longest" in basis
    assert found.computes
