"""Whether a run may have its mirror where a user says; asked before anything is written."""

from __future__ import annotations

from pathlib import Path

from resumerge.errors import Problem, refuse
from resumerge.mirror import Store
from resumerge.mirror.stores.registry import expected_address
from resumerge.options import Options


def check_state_apart(state: Path, store: Store) -> None:
    """The state folder must not lie in the mirror: databases in use do not belong on a drive.

    Raises:
        InputError: it does.
    """
    folder = store.local_folder
    if folder is None:
        return
    here, there = state.absolute().resolve(), folder.resolve()
    if here == there or there in here.parents:
        raise refuse(
            "The state folder lies in the mirror",
            where=store.url,
            expected="ledgers on a disk of this machine; the mirror gets copies of them",
            found=f"the state folder is {state.absolute()}",
            fix="name another one with --state-dir, or start in another folder",
        )


def check_has_mirror(options: Options, url: str | None) -> list[Problem]:
    """Options about a mirror need one, named or known to the run.

    Args:
        options: as given now.
        url: of the mirror, if there is one.
    """
    names = options.needing_mirror()
    if url is not None or not names:
        return []
    return [
        Problem(
            "There is no mirror",
            expected="--mirror DEST as well",
            found=" and ".join(names),
            fix=f"add --mirror DEST: {expected_address()}",
        )
    ]
