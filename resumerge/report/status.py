"""The document of ``resumerge status --json``: one run, or all runs of a state folder."""

from __future__ import annotations

from typing import Any

from resumerge.ledger.run_store import RunStore
from resumerge.report.mirror_status import status_of_mirror
from resumerge.report.run import describe_run


def status_json(store: RunStore, wanted: str | None) -> dict[str, Any]:
    """The runs of a state folder, newest first, or the one run that is named.

    Args:
        wanted: a run's id, output or mirror; None for all runs.

    Raises:
        InputError: there is no such run.
        Resumable: `wanted` is a mirror that cannot be read now.
    """
    if wanted is None:
        return {"runs": [describe_run(folder) for folder in reversed(store.runs())]}
    # slow; a list of runs needs none
    from resumerge.mirror.stores.registry import is_mirror_url, normalise

    if is_mirror_url(wanted):
        if ours := store.of_address(normalise(wanted)):
            return {"runs": [describe_run(ours[-1])]}
        return {"runs": [status_of_mirror(wanted)]}
    return {"runs": [describe_run(store.find(wanted))]}
