"""What can be refused of a new run, before anything is written or given up for it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from resumerge.engine.checks.preflight import (
    STATE,
    check_disk,
    check_output,
    check_outside,
    check_sources,
    check_writable,
    room_needed,
)
from resumerge.engine.mirrored.mirror_checks import check_has_mirror
from resumerge.engine.mirrored.mirror_session import MirrorSession, check_apart
from resumerge.errors import Problem
from resumerge.options import Options
from resumerge.planning import Plan


def check_new(
    plan: Plan,
    out: Path,
    state: Path,
    options: Options,
    far: MirrorSession | None,
    given_up: Collection[str] = (),
) -> list[Problem]:
    """What is wrong with a new run's output, disks, sources and mirror.

    Args:
        state: the state folder.
        far: its mirror, which is not asked for anything.
        given_up: files in `out` that go before it begins, and leave their room to it.
    """
    then_delete = far is not None and bool(options.mirror_then_delete)
    room = room_needed(plan, then_delete=then_delete)
    lacking = max(0, room - sum((out / name).stat().st_blocks * 512 for name in given_up))
    sources = [source.folder for source in plan.sources]
    problems = [
        *check_has_mirror(options, options.mirror),
        *check_writable(state, STATE),
        *check_output(out, given_up),
        *check_outside(out, sources),
        *check_disk(out, lacking, then_delete=then_delete),
        *check_sources(plan, out, lacking, offline=options.offline, evict=options.evict),
    ]
    if far is not None:
        problems += check_apart(out, far)
        if (folder := far.store.local_folder) is not None:
            problems += check_outside(folder, sources, "mirror")
    return problems
