"""Create a run: write its ledger with the whole plan before any other file."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import resumerge
from resumerge.engine.checks.paths import check_output
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.find import NewRun
from resumerge.engine.mirror_session.checks import refuse_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.opening.plan_rows import account_rows, shard_rows, source_rows, unit_rows
from resumerge.engine.resources.lock import is_abandoned, output_lock, run_lock
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.errors import InputError
from resumerge.host.machine import hostname
from resumerge.ledger import LEDGER_FILE, Ledger, now, take_snapshot
from resumerge.ledger.run_store import RECIPE_FILE, RunStore
from resumerge.ledger.validity import RECIPE_TEXT, text_digest
from resumerge.mirror.state import NOTHING
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.output.provenance import planned_options
from resumerge.output_path import OutputPath
from resumerge.planning import NUMERICS, Plan, fingerprint, fingerprint_parts


@contextmanager
def create_run(context: RunContext, plan: Plan, new: NewRun) -> Iterator[Ledger]:
    """Create a run: write its ledger with the whole plan, and lock it while the context is open.

    The run's folder appears only when it holds the complete plan.

    Raises:
        InputError: another run has started to use the output or the mirror.
    """
    out = new.out
    context.run_id = None  # the run that this one replaces has been deleted
    if context.options.mirror:
        _acquire_empty(context.open_mirror(context.options.mirror), out)
    context.storage.make_folder(out.folder)
    with output_lock(out):
        if problems := check_output(out):  # another run may have written to it meanwhile
            raise InputError(problems)
        staged_folder = context.runs.stage(out.model, context.storage)
        _delete_abandoned(context.runs, staged_folder)
        with run_lock(staged_folder, staged_folder.stem):
            run_folder = _write_plan(context, plan, new, staged_folder)
            context.run_id = run_folder.name
            with closing(Ledger(run_folder / LEDGER_FILE)) as ledger:
                yield ledger


def _acquire_empty(mirror: MirrorSession, out: OutputPath) -> None:
    """Acquire the lease of a new run's mirror, and check that the mirror is empty."""
    mirror.acquire_lease(out.model)
    with TemporaryFolder() as temporary_folder:
        mirror_state = mirror.read_state(temporary_folder / LEDGER_FILE)
    if mirror_state.kind != NOTHING:
        raise refuse_mirror(mirror, mirror_state)


def _delete_abandoned(runs: RunStore, own: Path) -> None:
    """Delete the staged folders of processes that died while they wrote a plan.

    Args:
        runs: the folder of all runs.
        own: the staged folder of this process.
    """
    for folder in runs.staged():
        if folder != own and is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _write_plan(context: RunContext, plan: Plan, new: NewRun, staged: Path) -> Path:
    """Write a new run's ledger, and return the run's folder under its final name."""
    options, storage = context.options, context.storage
    run_id = staged.stem
    parts_of_fingerprint = {**fingerprint_parts(plan), RECIPE_TEXT: text_digest(plan.recipe.text)}
    ledger = Ledger.create(staged / LEDGER_FILE)
    ledger.begin(
        {
            "id": run_id,
            "created": now(),
            "config_path": str(new.config.absolute()),
            "config_text": plan.recipe.text,
            "output": str(new.out),
            "fingerprint": fingerprint(parts_of_fingerprint),
            "fingerprint_parts": json.dumps(parts_of_fingerprint),
            "options": json.dumps(options.kept(**_planned(plan), **_places(options, new))),
            "versions": json.dumps(program_and_machine()),
            "host": hostname(),
            "state": "planned",
        },
        source_rows(plan),
        shard_rows(plan),
        unit_rows(plan),
        account_rows(plan.accounts),
    )
    if options.mirror:
        ledger.set_mirror(open_store(options.mirror).url)
    take_snapshot(ledger, storage)
    ledger.close()
    storage.write_file(staged / RECIPE_FILE, plan.recipe.text.encode())
    storage.sync_file(staged / LEDGER_FILE)
    return context.runs.publish(staged, storage)


def _planned(plan: Plan) -> dict[str, Any]:
    """Return the options that a plan was made with."""
    return {**planned_options(plan), **({"keep": list(plan.kept)} if plan.kept else {})}


def _places(options: Options, new: NewRun) -> dict[str, str]:
    """Return the folders that a run writes to outside its output, by option name."""
    folder = options.intermediate_dir or new.created_with.get("intermediate_dir")
    return {} if folder is None else {"intermediate_dir": str(Path(folder).absolute())}


def program_and_machine() -> dict[str, Any]:
    """Return the program's version, Python's version and the processor type, for the ledger."""
    return {
        "resumerge": resumerge.__version__,
        "numerics": NUMERICS,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
