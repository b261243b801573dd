"""Everything that can refuse a new run, before anything is written or abandoned for it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from resumerge.engine.checks.disk import check_disk, check_downloads, space_needed
from resumerge.engine.checks.paths import (
    STATE,
    check_output,
    check_outside,
    check_writable,
    source_folders,
)
from resumerge.engine.context import RunContext
from resumerge.engine.replication.checks import check_apart, check_has_mirror
from resumerge.errors import InputError, Problem
from resumerge.planning import Plan


def check_new(context: RunContext, plan: Plan, out: Path, replaced: Collection[str] = ()) -> None:
    """Check a new run's output folder, disks, sources and mirror; the mirror is not read.

    Args:
        replaced: names of files in `out` that are deleted first, and free their space.

    Raises:
        InputError: with every problem that was found.
    """
    if problems := new_run_problems(context, plan, out, replaced):
        raise InputError(problems)


def new_run_problems(
    context: RunContext, plan: Plan, out: Path, replaced: Collection[str] = ()
) -> list[Problem]:
    """The same as a list."""
    options = context.options
    mirror = context.open_mirror(options.mirror) if options.mirror else None
    then_delete = mirror is not None and bool(options.mirror_then_delete)
    freed = sum((out / name).stat().st_blocks * 512 for name in replaced)
    needed = max(0, space_needed(plan, then_delete=then_delete) - freed)
    folders = source_folders(plan)
    problems = [
        *check_has_mirror(options, options.mirror),
        *check_writable(context.runs.folder, STATE),
        *check_output(out, replaced),
        *check_outside(out, folders),
        *check_disk(out, needed, then_delete=then_delete),
        *check_downloads(plan, out, needed, offline=options.offline, evict=options.evict),
    ]
    if mirror is not None:
        problems += check_apart(out, mirror)
        if (folder := mirror.store.local_folder) is not None:
            problems += check_outside(folder, folders, "mirror")
    return problems
