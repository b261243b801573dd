"""What a machine does: the phases of `run` and `resume` that have to do with the mirror, by the
program's own code. Computing a shard is copying it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from promise import Promise
from shared_stores import Shared, digest
from virtual_machines import Process, Threading, Time, World, clock_of

from resumerge.engine.lifecycle.import_run import localize
from resumerge.engine.mirror_session.reconcile import Reconciler
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Reason, Resumable
from resumerge.ledger import Ledger, UnitCommit
from resumerge.mirror import ReplicationOptions, Replicator
from resumerge.mirror.lease import Lease
from resumerge.mirror.manifest import missing_files, read_manifest, remove_metadata
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.state import FINISHED, NOTHING, UNFINISHED
from resumerge.options import Options
from resumerge.storage import Storage

COMPANIONS = [("README.md", b"# a model\n"), ("config.json", b"{}\n")]
DONE, REFUSED, STOPPED = "done", "refused", "stopped"
TOTALS = {"units_committed": 0, "bytes_committed": 0, "peak_rss": 0, "batch_bytes": 0}


@dataclass(frozen=True)
class Made:
    """A run that was merged once, and is played again and again.

    Args:
        ledger: the complete ledger of the run.
        fresh: the ledger before the first attempt.
        shards: the bytes of the shards, by name.
        commits: the commits of each shard's units, by the number of the shard.
    """

    ledger: Path
    fresh: Path
    shards: Mapping[str, bytes]
    commits: Mapping[int, list[UnitCommit]]

    @classmethod
    def of(cls, ledger: Path, out: Path, folder: Path) -> Made:
        """Make a run that can be played, from the ledger and output of a finished one."""
        fresh = folder / "fresh.db"
        with closing(Ledger(ledger)) as done:
            commits = {
                shard["number"]: [
                    UnitCommit(
                        number=unit["number"],
                        hashes=unit["block_hashes"],
                        input_hashes=unit["input_hashes"],
                        checksum=unit["checksum"],
                        seconds=0.0,
                    )
                    for unit in done.units.all(shard["number"])
                ]
                for shard in done.shards.all()
            }
            names = [shard["name"] for shard in done.shards.all()]
        with closing(sqlite3.connect(ledger)) as db:
            db.execute("VACUUM INTO ?", [str(fresh)])
        with closing(Ledger(fresh)) as copy:
            copy.units.forget([unit["number"] for unit in copy.units.all()], "played_again")
            copy.set_state("planned")
        with closing(sqlite3.connect(fresh, isolation_level=None)) as db:
            for table in ("attempts", "events", "samples", "companions", "downloads"):
                db.execute(f"DELETE FROM {table}")
            db.execute("UPDATE units SET attempt = NULL, batch = NULL")
            db.execute("VACUUM")
            db.execute("PRAGMA journal_mode = DELETE")
        return cls(ledger, fresh, {n: (out / n).read_bytes() for n in names}, commits)

    @property
    def model(self) -> dict[str, str]:
        """SHA-256 of every file of the model."""
        files = {**self.shards, **dict(COMPANIONS)}
        return {name: digest(data) for name, data in files.items()}


@dataclass
class Mirrored:
    """A run with a mirror, worked on by the machines of a world."""

    made: Made
    world: World
    store: Shared
    promise: Promise
    then_delete: bool = False
    sessions: dict[int, MirrorSession] = field(default_factory=dict)

    def work(self, process: Process) -> str:
        """Do what `resumerge run … --mirror` or `resume` does, and return the outcome."""
        options = Options(mirror="far", take_over=process.take_over)
        session = MirrorSession("far", options, Reporter(), StopRequest())
        self.sessions[process.pid] = session
        try:
            return self._run(process, session)
        except InputError as error:
            self.world.log.append(f"{process.machine.name} is refused: {error}")
            return REFUSED
        except Resumable as error:
            self.world.log.append(f"{process.machine.name} stops: {error}")
            return STOPPED
        finally:
            session.release()

    def _run(self, process: Process, session: MirrorSession) -> str:
        machine = process.machine
        if not machine.ledger.exists() and self._begin(process, session):
            return DONE
        with closing(Ledger(machine.ledger)) as ledger:
            if ledger.run()["state"] == "done" and self._is_complete(session, ledger):
                return DONE
            reconciler = Reconciler(ledger, machine.out, session, Storage())
            manifest = reconciler.reconcile(may_be_empty=False)
            if manifest is not None:
                self._tidy(session)
                return DONE
            reconciler.compare()
            self._recover(process, ledger)
            self._attempt(process, session, ledger)
        return DONE

    def _begin(self, process: Process, session: MirrorSession) -> bool:
        """Create the run, or import it; return whether the mirror is finished already."""
        machine = process.machine
        staged = machine.folder / f"staged-{process.pid}"
        staged.mkdir(parents=True)
        state = session.read_state(staged / "before.db")
        if state.kind == FINISHED and state.manifest is not None:
            if missing_files(state.manifest, state.files):
                raise Resumable(Reason.MIRROR, "the finished model is incomplete")
            self._tidy(session)
            return True
        if state.kind not in (NOTHING, UNFINISHED):
            raise Resumable(Reason.MIRROR, f"{state.kind}: {state.others}, {state.skipped}")
        session.acquire_lease("run")
        now = session.read_state(staged / "ledger.db")
        if now.kind != state.kind:
            raise Resumable(Reason.MIRROR, f"it is {now.kind} now")
        if state.kind == NOTHING:
            shutil.copyfile(self.made.fresh, staged / "ledger.db")
            with closing(Ledger(staged / "ledger.db")) as ledger:
                ledger.set_mirror(session.url)
            with closing(sqlite3.connect(staged / "ledger.db", isolation_level=None)) as db:
                db.execute("UPDATE run SET id = ?", [f"run-{process.pid}"])
        else:
            localize(staged, machine.ledger.parent, machine.out, session.url, Storage())
        staged.rename(machine.ledger.parent)
        return False

    def _is_complete(self, session: MirrorSession, ledger: Ledger) -> bool:
        """Return whether a run that is done here is finished in the mirror."""
        manifest = retry_store(session.store, lambda: read_manifest(session.store))
        run = ledger.run()["id"]
        if manifest is None or manifest.run != run or missing_files(manifest, session.files()):
            return False
        self._tidy(session)
        return True

    def _tidy(self, session: MirrorSession) -> None:
        with suppress(InputError, Resumable):
            retry_store(session.store, lambda: remove_metadata(session.store))

    def _recover(self, process: Process, ledger: Ledger) -> None:
        """Forget shards that are neither here nor in the mirror: they are computed again."""
        mirrored = ledger.mirrored.checksums()
        for shard in ledger.shards.all():
            path = process.machine.out / shard["name"]
            if shard["state"] == "sealed" and not path.exists() and shard["name"] not in mirrored:
                units = [unit["number"] for unit in ledger.units.all(shard["number"])]
                ledger.units.forget(units, "shard_lost")

    def _attempt(self, process: Process, session: MirrorSession, ledger: Ledger) -> None:
        out = process.machine.out
        out.mkdir(exist_ok=True)
        facts = {"pid": process.pid, "host": "h", "boot_id": "b", "budget": 1, "batch_bytes": 1}
        attempt = ledger.attempts.start(facts)
        ledger.set_state("running")
        replicator = Replicator(
            session.store,
            session.acquire_lease(ledger.run()["id"]),
            ledger,
            out,
            ReplicationOptions(then_delete=self.then_delete, stall_seconds=3600.0),
            _LocalStorage(self.promise),
            lambda text: None,
            lambda text: None,
        )
        outcome = "interrupted"
        try:
            replicator.start()
            for batch, shard in enumerate(ledger.shards.all(), 1):
                if shard["state"] != "sealed":
                    self._compute(ledger, out, attempt, batch, shard)
                    replicator.sealed(shard["number"])
                    self.world.wait(lambda: True, None)
            replicator.finish(lambda: COMPANIONS, lambda: None)
            outcome = DONE
        finally:
            replicator.close()
            if not process.dead:
                ledger.attempts.end(attempt, outcome)
                ledger.set_state(outcome)

    def _compute(self, ledger: Ledger, out: Path, attempt: int, batch: int, shard: dict) -> None:
        (out / shard["name"]).write_bytes(self.made.shards[shard["name"]])
        ledger.units.commit_batch(attempt, batch, self.made.commits[shard["number"]], TOTALS)
        ledger.shards.seal(shard["number"])


class _LocalStorage(Storage):
    """The storage of local shards, which may be removed only if the mirror promises them."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise

    def remove(self, path: Path) -> None:
        if path.suffix == ".safetensors":
            promise = self._promise
            _, named = promise.promised()
            if path.name not in named and promise.unhindered():
                promise.broken = f"{path.name} was removed here, and the mirror does not promise it"
        super().remove(path)


@contextmanager
def virtual(world: World, store: Shared, promise: Promise) -> Iterator[None]:
    """Yield while the program's modules see the world in place of this machine."""
    threading, time, clock = Threading(world), Time(world), clock_of(world)
    acquired = Lease.__init__

    def note(lease: Lease, *given: object) -> None:
        acquired(lease, *given)  # type: ignore[arg-type]
        # It stays the process's: what was sent with it may arrive after the session's end.
        world.here.token = lease.token
        promise.acquired(world.here, lease)

    system = SimpleNamespace(getpid=lambda: world.here.pid, environ={})
    mirror = "resumerge.mirror"
    seen = {
        f"{mirror}.lease.threading": threading,
        f"{mirror}.lease.time": time,
        f"{mirror}.lease.clock": world.clock,
        f"{mirror}.lease.datetime": clock,
        f"{mirror}.lease.os": system,
        f"{mirror}.lease.hostname": lambda: world.here.machine.name,
        f"{mirror}.lease.boot_id": lambda: f"boot-{world.here.machine.boot}",
        f"{mirror}.lease.pid_space": lambda: "pids",
        f"{mirror}.lease.birth": world.birth,
        f"{mirror}.lease.secrets": SimpleNamespace(token_hex=world.random),
        f"{mirror}.lease._owners": _Owners(world),
        f"{mirror}.lease.Lease.__init__": note,
        f"{mirror}.lease_record.now": lambda: world.wall().isoformat(),
        f"{mirror}.retrying.clock": world.clock,
        f"{mirror}.replicator.threading": threading,
        f"{mirror}.replicator.time": time,
        f"{mirror}.transfer.time": time,
        f"{mirror}.manifest.peak_rss": lambda: 1,
        f"{mirror}.manifest.now": lambda: world.wall().isoformat(timespec="milliseconds"),
        f"{mirror}.stores.buckets.store.threading": threading,
        f"{mirror}.stores.buckets.store.secrets": SimpleNamespace(token_hex=world.random),
        f"{mirror}.stores.plain_files.FILE_PIECE_BYTES": 4096,
        f"{mirror}.stores.buckets.s3_uploads.PART": 3000,
        "resumerge.retry.time": time,
        "resumerge.ledger.connection.datetime": clock,
        "resumerge.engine.mirror_session.session.open_store": lambda url, offline=False: (
            store.open()
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in seen.items():
            patch.setattr(name, value)
        yield


class _Owners(set[str]):
    """The owners of leases that live in the present process of the world, not in the test's."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._pids: dict[str, int] = {}

    def add(self, owner: str) -> None:
        self._pids[owner] = self._world.here.pid
        super().add(owner)

    def __contains__(self, owner: object) -> bool:
        own = self._world.here.pid
        return super().__contains__(owner) and self._pids[str(owner)] == own
