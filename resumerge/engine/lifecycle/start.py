"""A new run: it begins once nothing can be refused any more."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path

from resumerge.engine.checks.new_run import check_new
from resumerge.engine.checks.preflight import check_output
from resumerge.engine.execute.reporter import Result
from resumerge.engine.lifecycle.context import RunContext
from resumerge.engine.lifecycle.create_run import create_run
from resumerge.engine.mirrored.mirror_session import MirrorSession, refuse_mirror
from resumerge.engine.mirrored.reconcile import temporary_folder
from resumerge.engine.resources.lock import folder_lock, is_abandoned, run_lock
from resumerge.errors import InputError
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.mirror.state import NOTHING
from resumerge.recipe import Recipe


def start_run(
    command: RunContext,
    recipe: Recipe,
    config: Path,
    out: Path,
    given_up: Collection[str] = (),
    before: Callable[[], None] = lambda: None,
) -> Result:
    """Begin a new run, and work on it.

    Args:
        given_up: names of files in `out` that `before` removes.
        before: gives up what an earlier run wrote.

    Raises:
        InputError: it is refused; nothing was written or given up.
        Interrupted, Resumable: stopped short.
    """
    options, storage = command.options, command.storage
    plan = command.plan(recipe, {}, {})
    far = command.reach(options.mirror) if options.mirror else None
    if problems := check_new(plan, out, command.home.folder, options, far, given_up):
        raise InputError(problems)
    means = command.means(plan)
    before()
    command.run_id = None
    if far is not None:
        _hold_empty(far, out)
    storage.make_folder(out)
    with folder_lock(out):
        if problems := check_output(out):  # a run that began, and ended, since the first look
            raise InputError(problems)
        unborn = _new_folder(command, out)
        with run_lock(unborn, unborn.stem):
            folder = create_run(plan, config, out, options, unborn, command.home, storage)
            command.run_id = folder.name
            with closing(Ledger(folder / LEDGER_FILE)) as ledger:
                return command.work(plan, ledger, out, means, resumed=False)


def _hold_empty(far: MirrorSession, out: Path) -> None:
    """Hold the mirror that a new run is to have."""
    far.hold(out.name)
    with temporary_folder() as folder:
        held = far.read_state(folder / LEDGER_FILE)
    if held.what != NOTHING:
        raise refuse_mirror(far, held)


def _new_folder(command: RunContext, out: Path) -> Path:
    """A folder for a new run; those that died before they were whole are cleared away."""
    folder = command.home.new(out, command.storage)
    for other in command.home.unborn():
        if other != folder and is_abandoned(other):
            shutil.rmtree(other, ignore_errors=True)
    return folder
