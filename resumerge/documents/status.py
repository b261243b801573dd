"""The document of ``resumerge status --json``: one run, all runs, or the run in a mirror."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.documents.run import (
    describe_finished,
    describe_from_ledger,
    describe_run,
)
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation.state import find_search, list_searches

if TYPE_CHECKING:
    from resumerge.mirror.lease_record import LeaseRecord

CLOCK_ERROR_TO_TELL = 600.0
"""The assumed error of another machine's clock in seconds, for display only.

The takeover of a lease assumes a larger error (`resumerge.mirror.lease`).
"""


def status_json(
    store: RunStore, wanted: str | None, *, every_tensor: bool = False
) -> dict[str, Any]:
    """Return the runs and searches of a state folder, newest first, or a single run or search.

    All trials of a search are listed only if the search is `wanted`.

    Args:
        store: the folder of all runs, which also contains the searches.
        wanted: the id or output of a run or a search, or the address of a mirror; None for all
            runs and searches.
        every_tensor: whether the accounts list every tensor.

    Raises:
        InputError: there is no such run or search, or Optuna is missing and `wanted` is a search.
        Resumable: `wanted` is a mirror or a study that cannot be read now.
    """
    describe = partial(describe_run, every_tensor=every_tensor)
    if wanted is None:
        return {
            "runs": [describe(folder) for folder in reversed(store.runs())],
            "searches": [*reversed(list_searches(store))],
        }
    if (search_folder := find_search(store, wanted)) is not None:
        from resumerge.optimisation.document import search_json

        return {"runs": [], "searches": [search_json(search_folder)]}
    # Imported here: the import is slow, and a list of runs does not need it.
    from resumerge.mirror.stores.registry import is_mirror_url, normalise

    if is_mirror_url(wanted):
        if runs_here := store.of_address(normalise(wanted)):
            return {"runs": [describe(runs_here[-1])], "searches": []}
        run = status_of_mirror(wanted, every_tensor=every_tensor)
        return {"runs": [run], "searches": []}
    return {"runs": [describe(store.find(wanted))], "searches": []}


def status_of_mirror(url: str, *, every_tensor: bool = False) -> dict[str, Any]:
    """Return the document of the run in a mirror, an entry of ``runs`` in ``status --json``.

    Args:
        url: the mirror's address.
        every_tensor: whether the accounts list every tensor.

    Raises:
        InputError: the mirror holds no run.
        Resumable: the mirror cannot be read now.
    """
    # Imported here: the status of a run on this machine needs no engine, which takes 0.4 s.
    from resumerge.engine.mirror_session.checks import refuse_mirror
    from resumerge.engine.mirror_session.session import MirrorSession
    from resumerge.engine.reporter import Reporter
    from resumerge.engine.resources.signals import StopRequest
    from resumerge.mirror.lease_record import read_lease
    from resumerge.mirror.retrying import retry_store
    from resumerge.options import Options

    session = MirrorSession(url, Options(), Reporter(), StopRequest())
    folder = _folder(url)
    state = session.read_state(folder / LEDGER_FILE)
    if state.manifest is not None:
        return describe_finished(session.url, state.manifest)
    if not state.snapshot:
        raise refuse_mirror(session, state)
    lease = retry_store(session.store, lambda: read_lease(session.store, state.files))
    is_alive = lease is not None and _is_alive(lease)
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        ledger.set_mirror_url(session.url)
        run = describe_from_ledger(ledger, folder, alive=is_alive, every_tensor=every_tensor)
    run["state"] = "running" if is_alive else "interrupted"
    run["mirror"] |= {"here": False, "held_by": str(lease) if is_alive else None}
    return run


_folders: dict[str, Path] = {}
"""The temporary folder of each mirror's ledger, by the mirror's address.

The folders exist until the process ends, since plots read the ledger when they are drawn.
"""


def _folder(url: str) -> Path:
    """Return a new temporary folder for a mirror's ledger, and delete the mirror's previous one."""
    if url in _folders:
        shutil.rmtree(_folders[url], ignore_errors=True)
    folder = _folders[url] = Path(tempfile.mkdtemp(prefix="resumerge-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_alive(lease: LeaseRecord) -> bool:
    """Return whether a machine holds a lease, with an allowance for a wrong clock."""
    age = lease.age(datetime.now(UTC))
    return (
        not lease.released and age is not None and not lease.is_dead(abs(age), CLOCK_ERROR_TO_TELL)
    )
