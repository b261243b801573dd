"""Check that memory is sufficient: the budget of a run, and the threads that fit in it."""

from __future__ import annotations

import math
import time

from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.governor import SAMPLE_SECONDS, margin
from resumerge.errors import InputError, Problem, Reason, Resumable
from resumerge.host.machine import cores
from resumerge.host.memory import MACHINE, Memory, measure_memory, rss
from resumerge.planning.estimates.memory import MemoryEstimate, MemoryNeed
from resumerge.sizes import show_size


def memory_budget(allowed: int | None, memory: Memory | None = None) -> int:
    """Return the bytes of RSS that the process may use: `allowed`, or the free memory if less.

    Args:
        allowed: bytes that the user allows; None for all that this machine has.
        memory: the machine's memory as measured before; None to measure it now.
    """
    memory = memory or measure_memory()
    available_bytes = int(memory.available + rss() - margin(memory.total))
    return max(0, available_bytes if allowed is None else min(allowed, available_bytes))


def most_threads() -> int:
    """Return the largest number of threads that a merge starts on this machine."""
    return max(32, 4 * cores())


def too_many_threads(wanted: int | None) -> list[str]:
    """Return a note if the user asks for more threads than are started."""
    thread_limit = most_threads()
    if wanted is None or wanted <= thread_limit:
        return []
    return [
        f"{wanted} threads are more than this machine can use; at most {thread_limit} are started"
    ]


def wait_for_budget(
    memory: MemoryEstimate, allowed: int | None, seconds: float, reporter: Reporter
) -> int:
    """Wait until one thread of an existing run fits in memory, and return the run's budget.

    Args:
        memory: the run's estimated memory, by number of threads.
        allowed: bytes that the user allows. If they are too few for one thread, the function
            does not wait.
        seconds: the longest wait.
        reporter: receives the reason of the wait, several times a second.

    Raises:
        Resumable: other programs left too little memory for `seconds`.
    """
    need = memory.need(1)
    wait_started = time.monotonic()
    while (budget := memory_budget(allowed)) < need.enough and not _budget_is_too_small(
        allowed, need
    ):
        now = time.monotonic()
        if now - wait_started > seconds:
            problem = _too_little(need, budget, allowed)
            raise Resumable(
                Reason.MEMORY,
                f"Not enough memory to continue, after {now - wait_started:.0f} s of waiting\n"
                f"{problem}",
            )
        need_text = f"{show_size(need.enough)} is needed to continue"
        reporter.waiting(f"Waiting for memory: {measure_memory()}; {need_text}")
        reporter.heartbeat()
        time.sleep(SAMPLE_SECONDS)
    return budget


def fit_threads(
    memory: MemoryEstimate, wanted: int | None, budget: int, allowed: int | None = None
) -> int:
    """Return the largest number of threads that fits in the budget.

    Args:
        memory: the merge's estimated memory, by number of threads.
        wanted: the most threads; None for one thread per core.
        budget: bytes of RSS, as `memory_budget` or `wait_for_budget` returned them.
        allowed: bytes that the user allows, for the error message.

    Raises:
        InputError: not even one thread fits.
    """
    threads = min(wanted or cores(), most_threads())
    while True:
        need = memory.need(threads)
        if need.enough <= budget:
            return threads
        if threads == 1:
            raise InputError([_too_little(need, budget, allowed)])
        threads -= 1


def _budget_is_too_small(allowed: int | None, need: MemoryNeed) -> bool:
    return allowed is not None and allowed < need.enough


def _too_little(need: MemoryNeed, budget: int, allowed: int | None) -> Problem:
    if allowed is not None and _budget_is_too_small(allowed, need):
        found = f"--memory {show_size(allowed).replace(' ', '')}"
        fix = f"raise --memory to {math.ceil(need.enough / 1e6)}MB or more"
    else:
        memory = measure_memory()
        found = f"{show_size(budget)}: {memory}, {show_size(margin(memory.total))} of it stays free"
        missing_size = show_size(need.enough - budget)
        fix = (
            f"close other programs in {memory.bound}, or raise its limit: {missing_size} more is "
            "needed"
        )
        if memory.bound == MACHINE:
            fix = f"close other programs on this machine: {missing_size} more is needed"
    return Problem(
        "The memory budget is too small for this merge, even with one thread",
        expected=f"at least {show_size(need.enough)}",
        found=found,
        fix=fix,
    )
