"""``resumerge cache check`` and ``repair``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import resumerge.cli.arguments as args
from resumerge.cli.commands import Commands
from resumerge.options import Options
from resumerge.ui.progress.keepalive import told_meanwhile
from resumerge.ui.terminal.terminal import err, out, print_document, stop

cache = Commands("cache", "Whether cached sources are intact, and mending them.")


@cache.function("check")
def cache_check(
    target: args.Target,
    state_dir: args.StateDir = None,
    offline: args.Offline = False,
    as_json: args.Json = False,
) -> None:
    """Read cached files again and compare them with their hashes; exits 75 if one is not right."""
    from resumerge.engine.reports.cache_check import check_cache

    _show_cache(check_cache, target, state_dir, offline, as_json)


@cache.function("repair")
def cache_repair(
    target: args.Target, state_dir: args.StateDir = None, as_json: args.Json = False
) -> None:
    """Check, and fetch the files that are damaged or missing, and no others."""
    from resumerge.engine.reports.cache_check import repair_cache

    _show_cache(repair_cache, target, state_dir, False, as_json)


def _show_cache(
    work: Callable[..., Any], target: str, state_dir: Path | None, offline: bool, as_json: bool
) -> None:
    from resumerge.report.resume_command import repair_command
    from resumerge.ui.terminal.cache import show_cache

    with told_meanwhile(err, "reading"), err.status("reading") as status:
        found = work(
            target,
            Options(state_dir, offline=offline),
            lambda name: status.update(f"reading {name}"),
        )
    if as_json:
        print_document(found.as_json())
    else:
        out.print(show_cache(found))
    if not found.intact:
        text = "`resumerge run`, `resume` or this fetch what is not right:"
        stop([text], repair_command(target, state_dir))
