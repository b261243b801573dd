"""The resource budget of an attempt: threads, memory and device."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.engine.checks.memory import (
    fit_threads,
    memory_budget,
    too_many_threads,
    wait_for_budget,
)
from resumerge.engine.context import RunContext
from resumerge.engine.resources.device import device_for
from resumerge.host.speed import measure_speed
from resumerge.planning import Estimate, Plan
from resumerge.planning.estimates.estimate import Prediction, largest_file


@dataclass(frozen=True)
class ResourceBudget:
    """The resources that an attempt may use, and its predicted use.

    Args:
        memory: the bytes of RSS that the process may use.
        device: the device on which torch computes: ``cpu``, ``cuda`` or ``cuda:1``.
    """

    threads: int
    memory: int
    device: str
    predicted: Prediction

    @property
    def estimate(self) -> Estimate:
        """The plan's estimate: memory, disk space and time, independent of the machine."""
        return self.predicted.estimate


def resource_budget(
    context: RunContext, plan: Plan, estimate: Estimate, *, memory_wait: float | None = None
) -> ResourceBudget:
    """Decide threads, memory and device from the plan's estimate and this machine's resources.

    Args:
        context: it gives the threads, the memory and the device that were asked for; its reporter
            shows notes about them, and waiting.
        plan: the plan to compute; the largest of its source files on this machine serves to measure
            the speed of reading.
        estimate: the estimate of `plan`, whose memory decides how many threads fit.
        memory_wait: seconds to wait for memory; None to refuse at once, for a new run.

    Raises:
        InputError: there is not enough memory for a new run, or the device does not exist.
        Resumable: there was not enough memory for `memory_wait` seconds.
    """
    context.reporter.doing("measuring the memory")
    options = context.options
    device, device_notes = device_for(estimate, options.device)
    if memory_wait is None:
        memory = memory_budget(context.memory)
    else:
        memory = wait_for_budget(estimate.memory, context.memory, memory_wait, context.reporter)
    for note in (*device_notes, *too_many_threads(options.threads)):
        context.reporter.note(note)
    threads = fit_threads(estimate.memory, options.threads, memory, context.memory)
    # Only reading is measured here, because the run may still be refused, and a refused run must
    # not write. The command `plan` also measures how fast the disk writes.
    speed = measure_speed(largest_file(plan, estimate), computes=estimate.time.computes)
    return ResourceBudget(threads, memory, device, estimate.on_machine(threads, speed))
