"""Checks of a mirror's options, address and contents, before anything is written."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.errors import InputError, Problem, refuse
from resumerge.local_path import is_within
from resumerge.mirror.state import DAMAGED, FINISHED, FOREIGN, NOTHING, MirrorState
from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.registry import expected_address
from resumerge.options import Options
from resumerge.output_path import OutputPath

SHOWN = 5
"""The most files that a message names."""


def check_state_apart(state: Path, store: Store) -> None:
    """Refuse a state folder inside the mirror, which may be on a network drive.

    SQLite databases in use need a local disk.

    Raises:
        InputError: the state folder is inside the mirror.
    """
    folder = store.local_folder
    if folder is not None and is_within(state, folder):
        raise refuse(
            "The state folder is inside the mirror",
            where=store.url,
            expected="ledgers on a disk of this machine; the mirror gets copies of them",
            found=f"the state folder is {state.absolute()}",
            fix="name another one with --state-dir, or start in another folder",
        )


def check_has_mirror(options: Options, url: str | None) -> list[Problem]:
    """Return a problem if options need a mirror, and neither the command nor the run names one.

    Args:
        options: the options that the command names; those that need a mirror are checked.
        url: the mirror's address, or None.
    """
    names = options.needing_mirror()
    if url is not None or not names:
        return []
    return [
        Problem(
            "A mirror is needed, but none is given",
            expected="--mirror DEST as well",
            found=" and ".join(names),
            fix=f"add --mirror DEST: {expected_address()}",
        )
    ]


def check_reachable(mirror: MirrorSession) -> list[Problem]:
    """Return the problems with a mirror's address; see `Store.check_address`."""
    return mirror.store.check_address()


def check_apart(out: OutputPath, mirror: MirrorSession) -> list[Problem]:
    """Return a problem if the mirror and the output contain each other."""
    folder = mirror.store.local_folder
    if folder is None:
        return []
    if not is_within(out.path, folder) and not is_within(folder, out.path):
        return []
    return [
        Problem(
            "The mirror contains the output, or the output contains the mirror",
            where=mirror.url,
            found=f"the output is {out}",
            fix="name another folder for the mirror, on another disk",
        )
    ]


def refuse_mirror(mirror: MirrorSession, state: MirrorState) -> InputError:
    """Return the error for a mirror that the run cannot use."""
    noun = mirror.store.noun
    if state.kind == DAMAGED:
        return refuse(
            f"The {noun} holds a run whose ledger cannot be used",
            where=mirror.url,
            found="; ".join(state.skipped[:SHOWN]),
            fix=f"name another {noun}, or use the version of resumerge that wrote this one; "
            "delete its files only if you do not need them",
        )
    if state.kind == FOREIGN:
        return refuse(
            f"The {noun} contains other files",
            where=mirror.url,
            expected=f"a new or empty place, or the {noun} of this run",
            found=", ".join(state.others[:SHOWN]),
            fix=f"name another {noun}, or move these files to another place",
        )
    if state.kind == NOTHING:
        return refuse(
            f"There is no run in this {noun}",
            where=mirror.url,
            expected=f"the {noun} of a run",
            found="no files of a run",
            fix="check the name; if it is on a drive, mount the drive",
        )
    holding_run = state.manifest.run if state.kind == FINISHED and state.manifest else "another"
    return refuse(
        f"The {noun} holds another run",
        where=mirror.url,
        found=f"{state.kind}: {holding_run}",
        fix=f"name another {noun}, or add --restart to delete what that run wrote there",
    )
