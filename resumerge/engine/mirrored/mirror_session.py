"""A run's mirror as one session has to do with it: its place, and the right to write there."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.execute.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Problem, Resumable, refuse
from resumerge.mirror import Lease, Store
from resumerge.mirror.lease import retry
from resumerge.mirror.state import DAMAGED, FINISHED, FOREIGN, NOTHING, MirrorState, read_state
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options

SHOWN = 5
"""Files that a message names."""


class MirrorSession:
    """A mirror, held by this process from `hold` to `release`."""

    def __init__(self, url: str, options: Options, reporter: Reporter, stop: StopRequest) -> None:
        """
        Raises:
            InputError: the address is none.
        """
        self.store: Store = open_store(url, offline=options.offline)
        self._take_over, self._reporter, self._stop = options.take_over, reporter, stop
        self._lease: Lease | None = None

    @property
    def url(self) -> str:
        """As the ledger has it."""
        return self.store.url

    def check_mounted(self) -> None:
        """A folder can only be there where the one above it is.

        Raises:
            Resumable: it is not.
        """
        folder = self.store.local_folder
        if folder is not None and not (above := folder.parent).is_dir():
            raise Resumable(
                "mirror",
                f"The mirror at {self.url} cannot be reached: there is no {above}. Mount the drive,"
                " then resume; what is merged here stays",
            )

    def read_state(self, ledger: Path) -> MirrorState:
        """See what the mirror holds; see `resumerge.mirror.state.look`.

        Raises:
            InputError: nothing can be read there.
            Resumable: it cannot be reached.
        """
        return retry(self.store, lambda: read_state(self.store, ledger))

    def files(self) -> dict[str, int]:
        """Bytes of every file that is there, by name.

        Raises:
            InputError, Resumable: as `look`.
        """
        return retry(self.store, self.store.list)

    def hold(self, run: str) -> Lease:
        """The lease, taken now unless it is held already.

        Raises:
            InputError: another machine works there, or nothing can be written there.
            Resumable: it cannot be reached.
        """
        if self._lease is None:
            self._lease = Lease.take(
                self.store,
                run,
                take_over=self._take_over,
                note=self._reporter.note,
                heartbeat=self._reporter.heartbeat,
            )
        return self._lease

    def note(self, text: str) -> None:
        """Tell a person something about it."""
        self._reporter.note(text)

    def release(self) -> None:
        """Let other machines go on."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def moved(self, nbytes: int) -> None:
        """Bytes came from there: the watchdog hears of it, and a signal is heard."""
        self._reporter.heartbeat()
        self._stop.check()


def check_reachable(far: MirrorSession) -> list[Problem]:
    """A mirror's folder is made, the one that it lies in is not: a drive that is not mounted must
    not be taken for an empty one."""
    return far.store.check_address()


def check_apart(out: Path, far: MirrorSession) -> list[Problem]:
    """The mirror and the output must not lie in each other."""
    folder = far.store.local_folder
    if folder is None:
        return []
    here, there = out.resolve(), folder.resolve()
    if here != there and here not in there.parents and there not in here.parents:
        return []
    return [
        Problem(
            "The mirror and the output lie in each other",
            where=far.url,
            found=f"the output is {out}",
            fix="name a folder for the mirror beside it, on another disk",
        )
    ]


def refuse_mirror(far: MirrorSession, held: MirrorState) -> InputError:
    """That a mirror holds what no run can go on with, to be raised."""
    if held.what == DAMAGED:
        return refuse(
            "The mirror holds a run whose ledger cannot be used",
            where=far.url,
            found="; ".join(held.skipped[:SHOWN]),
            fix="name another mirror, or delete what is in this one",
        )
    if held.what == FOREIGN:
        return refuse(
            "The mirror holds something else",
            where=far.url,
            expected="a new or empty folder or repo, or the mirror of this run",
            found=", ".join(held.others[:SHOWN]),
            fix="name another mirror, or move away what is there",
        )
    if held.what == NOTHING:
        return refuse(
            "There is no run in this mirror",
            where=far.url,
            expected="the mirror of a run",
            found="nothing",
            fix="check its name; a drive has to be mounted first",
        )
    run = held.done.run if held.what == FINISHED and held.done else "another"
    return refuse(
        "The mirror holds another run",
        where=far.url,
        found=f"{held.what}: {run}",
        fix="name another mirror, or add --restart to give up what the run wrote there",
    )
