"""Giving up what a run wrote to its mirror, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from resumerge.engine.far_side import SHOWN, FarSide
from resumerge.errors import refuse
from resumerge.ledger import Ledger
from resumerge.mirror.finished import DONE_FILE, read_done
from resumerge.mirror.folder import PART
from resumerge.mirror.holder import epochs, lease_name
from resumerge.mirror.lease import patiently
from resumerge.mirror.place import BOOKS


def mirrored_files(ledger: Ledger) -> dict[str, tuple[int, str]]:
    """Bytes and SHA-256 of what a ledger says is in the mirror, by name."""
    rows = ledger.rows("SELECT * FROM mirrored")
    shards = ledger.rows("SELECT name FROM shards")
    unknown = {row["name"]: (-1, "") for row in shards}
    return {**unknown, **{row["name"]: (row["nbytes"], row["sha256"]) for row in rows}}


def give_up(far: FarSide, run: str, files: Mapping[str, tuple[int, str]]) -> None:
    """Remove the files of a run from its mirror, and its books; the mirror is held after.

    Args:
        files: bytes and SHA-256 of each, by name; those that differ are not the run's any more.

    Raises:
        InputError: there is something else; nothing was removed.
        Resumable: the mirror cannot be reached.
    """
    lease = far.hold(run)
    there = far.files()
    if (done := patiently(far.place, lambda: read_done(far.place))) and done.run == run:
        files = {**files, **done.files}
    ours = {
        name
        for name, (nbytes, sha256) in files.items()
        if there.get(name) == nbytes
        and patiently(far.place, lambda: far.place.sha256(name, far.moved)) == sha256  # noqa: B023
    }
    ours |= {name + PART for name in files} & there.keys()
    leases = {lease_name(n) for n in epochs(there)}
    books = {name for name in there if name.startswith(f"{BOOKS}/")} - leases
    hub = {".gitattributes", "README.md"} if far.url.startswith("hf://") else set()
    if others := sorted(there.keys() - ours - books - leases - hub):
        raise refuse(
            "The mirror holds files that the run did not write, or that were changed since",
            where=far.url,
            expected="nothing but what the run wrote there",
            found=", ".join(others[:SHOWN]),
            fix="move away what is to be kept, and delete the rest",
        )
    first = [name for name in ("config.json",) if name in ours]
    rest = sorted(ours - set(first))
    last = sorted(books, key=lambda name: (name != DONE_FILE, name))
    lease.check()
    if first or rest or last:
        patiently(far.place, lambda: far.place.write({}, [*first, *rest, *last]))
