"""The checks that can refuse a new run, before anything is written or abandoned for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing

from resumerge.engine.checks.adapters import check_adapters
from resumerge.engine.checks.cluster import check_cluster
from resumerge.engine.checks.disk import check_disk, check_downloads
from resumerge.engine.checks.paths import (
    STAGES,
    STATE,
    check_form,
    check_output,
    check_outside,
    check_path,
    check_state,
    check_writable,
    source_folders,
)
from resumerge.engine.context import RunContext
from resumerge.engine.linked_stages import problems_of_links
from resumerge.engine.mirror_session.checks import check_apart, check_has_mirror
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Problem
from resumerge.output_path import OutputPath
from resumerge.planning import Estimate, Plan
from resumerge.tensors import Step


def check_new(
    context: RunContext,
    plan: Plan,
    estimate: Estimate,
    out: OutputPath,
    *,
    replaced: Collection[str] = (),
    bytes_on_disk: int = 0,
) -> None:
    """Check a new run's output, disks, sources and mirror; nothing is read from the mirror.

    Args:
        context: its options and state folder are checked; the mirror that they name is opened, not
            read.
        plan: the plan; the output must not be inside one of its sources.
        estimate: the estimate of `plan`; its disk space and its steps are checked.
        out: the output, which must be new or empty except for the files of `replaced`.
        replaced: names of files in the output's folder that are deleted first, which frees their
            space.
        bytes_on_disk: bytes of the output's shards that are already on its disk, and only need to
            be moved.

    Raises:
        InputError: the run is refused; the error has every problem that was found.
    """
    if problems := new_run_problems(context, plan, estimate, out, replaced, bytes_on_disk):
        raise InputError(problems)


def new_run_problems(
    context: RunContext,
    plan: Plan,
    estimate: Estimate,
    out: OutputPath,
    replaced: Collection[str] = (),
    bytes_on_disk: int = 0,
) -> list[Problem]:
    """Return the problems for which `check_new` refuses a run."""
    options = context.options
    mirror = context.open_mirror(options.mirror) if options.mirror else None
    freed_bytes = sum((out.folder / name).stat().st_blocks * 512 for name in replaced)
    shared_bytes = 0 if context.frees_shards else _shared_bytes(context, plan, out)
    needed_bytes = max(0, estimate.disk - freed_bytes - shared_bytes - bytes_on_disk)
    model_folders, reference = source_folders(plan), plan.reference_model
    problems = [
        *check_has_mirror(options, options.mirror),
        *check_writable(context.runs.folder, STATE),
        *check_form(out, reference.ref.text, single=reference.single),
        *check_output(out, replaced),
        *check_outside(out.path, model_folders),
        *check_state(context.runs.folder, out),
        *check_cluster(options, plan, estimate, out),
        *check_disk(
            out.folder,
            needed_bytes,
            then_delete=context.frees_shards,
            cluster=options.ray is not None,
        ),
        *check_downloads(
            plan,
            estimate,
            out.folder,
            needed_bytes,
            offline=options.offline,
            evict=bool(options.evict),
        ),
        *check_adapters(plan),
        *step_problems(estimate.steps, context.stop),
    ]
    if (stages_folder := options.intermediate_dir) is not None:
        path_problems = [
            *check_path(stages_folder.absolute(), STAGES),
            *check_outside(stages_folder, model_folders, STAGES),
        ]
        problems += path_problems or check_writable(stages_folder.absolute(), STAGES)
        problems += problems_of_links(stages_folder, plan, out.folder)
    if mirror is not None:
        problems += check_apart(out, mirror)
        if (folder := mirror.store.local_folder) is not None:
            problems += check_outside(folder, model_folders, "mirror")
    return problems


def _shared_bytes(context: RunContext, plan: Plan, out: OutputPath) -> int:
    """Return the bytes of the shards that will share their disk space with weight files."""
    with closing(context.shard_files(plan, out.folder)) as files:
        return sum(shard.nbytes for shard in plan.shards if files.will_share(shard))


def step_problems(steps: Iterable[Step], stop: StopRequest) -> Iterator[Problem]:
    """Yield the problems of a plan's steps; this imports the libraries that the steps need."""
    for step in steps:
        with stop.between_imports():
            problems = list(step.problems())
        yield from problems
