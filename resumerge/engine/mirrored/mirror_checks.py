"""Checks of the options about a mirror, before anything is written."""

from __future__ import annotations

from pathlib import Path

from resumerge.errors import Problem, refuse
from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.registry import expected_address
from resumerge.options import Options


def check_state_apart(state: Path, store: Store) -> None:
    """The state folder must not lie in the mirror: a network drive is no place for databases in
    use.

    Raises:
        InputError: it does.
    """
    folder = store.local_folder
    if folder is not None and state.absolute().resolve().is_relative_to(folder.resolve()):
        raise refuse(
            "The state folder lies in the mirror",
            where=store.url,
            expected="ledgers on a disk of this machine; the mirror gets copies of them",
            found=f"the state folder is {state.absolute()}",
            fix="name another one with --state-dir, or start in another folder",
        )


def check_has_mirror(options: Options, url: str | None) -> list[Problem]:
    """Options about a mirror need one, from the command or the run.

    Args:
        options: of the command.
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
