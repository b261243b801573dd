"""The promise of a mirror as a plain model, which looks at the store after every request.

It uses nothing of the program to read the mirror, and asks the program's audit now and then whether
it says the same.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import xxhash
from mirror_audit import check_mirror
from shared_stores import Shared, digest
from virtual_machines import Process, World

from resumerge.mirror.lease import Lease

DONE = ".resumerge/done.json"
LEASE = re.compile(r"\.resumerge/lease-(\d+)\.json")
SNAPSHOT = re.compile(r"\.resumerge/ledger-(\d+)-(\d+)-([0-9a-f]{32})\.db")
AUDITED = 16
"""The number of changes from one audit to the next."""

Files = Mapping[str, str]
"""SHA-256 by name."""


class Broken(AssertionError):
    """A broken promise."""


@dataclass(frozen=True)
class Claim:
    """A lease that a process has acquired.

    Args:
        at: the world's time of the acquisition.
    """

    process: Process
    lease: Lease
    at: float

    @property
    def counts(self) -> bool:
        """Whether the process may believe that it owns the lease."""
        return self.process.alive and not self.lease._stopped and not self.lease._lost

    @property
    def verified(self) -> float:
        """The world's time at which the lease was last verified."""
        return _instant(self.lease._renewed_at - 1000.0 * self.process.boot)


@dataclass
class Promise:
    """A watcher of a store, which checks the promises after every change.

    Attributes:
        model: SHA-256 of every file of the finished model.
        harmed: names of files that the test damaged, until the run has mended them.
        audits, changes: the numbers of audits, and of changes of the store.
    """

    world: World
    store: Shared
    model: Files
    harmed: set[str] = field(default_factory=set)
    backups: set[str] = field(default_factory=set)
    """Names that damaged files may have got: they look like files that a user edited."""
    metadata_harmed: bool = False
    audits: int = 0
    changes: int = 0
    finished: bytes | None = None
    """The manifest, once it is there."""
    begun: bool = False
    """Whether there was an intact snapshot."""
    finishers: list[Process] = field(default_factory=list)
    """The processes that have written a manifest."""
    contents: dict[str, bytes] = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)
    """The fencing token of the process that wrote each file."""
    claims: list[Claim] = field(default_factory=list)
    broken: str = ""
    _named: dict[str, Files] = field(default_factory=dict)

    def watch(self) -> None:
        self.world.changed = self.changed

    def changed(self, process: Process | None, names: Iterable[str]) -> None:
        """Check files that a process may have changed."""
        try:
            for name in names:
                before = self.contents.get(name)
                now = self.store.read(name)
                if now == before:
                    continue
                self.changes += 1
                self._follow(name, now)
                if process is not None:
                    self._fenced(process, name, before, now)
                    self._exclusive(process, name, now)
                self._final(process, name, before, now)
            self._consistent()
        except Broken as broken:
            self.broken = self.broken or str(broken)

    def harm(self, name: str, data: bytes | None) -> None:
        """Damage or remove a file, as somebody else might."""
        self.store.write(name, data)
        self._follow(name, data)
        self.harmed.add(name)
        self.backups.add(f"{name}.kept")
        if name.startswith(".resumerge/"):
            self.metadata_harmed = True
        if name == DONE:
            self.finished = None

    def check(self) -> None:
        """Raise the first broken promise, if there is one."""
        if self.broken:
            raise Broken("\n".join([*self.world.log[-60:], self.broken]))

    def _follow(self, name: str, now: bytes | None) -> None:
        if now is None:
            self.contents.pop(name, None)
        else:
            self.contents[name] = now
        if now is not None and digest(now) == self.model.get(name):
            self.harmed.discard(name)

    # A lower fencing token replaces or removes nothing of a higher one

    def _fenced(self, process: Process, name: str, before: bytes | None, now: bytes | None) -> None:
        token, writer = process.token, self.writers.get(name, 0)
        if name.endswith(".part") or "/probe-" in name or name == DONE:
            return  # `_final` looks at the manifest
        if now is None:
            self.writers.pop(name, None)
        elif name not in self.writers or token >= writer:
            self.writers[name] = token
        lower = token < writer and before is not None and not self.metadata_harmed
        if now is None and self.finished is not None and name.startswith(".resumerge/"):
            return  # a finished mirror needs no leases and snapshots
        whole = before is not None and digest(before) == self.model.get(name)
        if lower and (whole or name.startswith(".resumerge/")):
            verb = "removed" if now is None else "replaced"
            raise Broken(f"{token} {verb} {name}, which {writer} wrote")

    # One owner of the lease

    def _exclusive(self, process: Process, name: str, now: bytes | None) -> None:
        """Check that no other machine may believe that it owns a lease that is being claimed."""
        found = LEASE.fullmatch(name)
        if found is None or now is None or self.metadata_harmed or process.take_over:
            return
        if process.token or self.world.clocks_moved or not self.store.exclusive:
            return
        for claim in self.claims:
            since = _instant(self.world.now - claim.lease._record.seconds / 2)
            if claim.process is not process and claim.counts and claim.verified > since:
                raise Broken(
                    f"{process.machine.name} claims {name}, while {claim.process.machine.name} "
                    f"may believe in {claim.lease.token}"
                )

    def owners(self) -> None:
        """Check that no lease is verified after a higher one is claimed, or has another's token."""
        if self.metadata_harmed or not self.store.exclusive:
            return
        live = [claim for claim in self.claims if claim.counts]
        for claim, later in itertools.permutations(live, 2):
            lower = claim.lease.token < later.lease.token and claim.verified > later.at
            if lower or claim.lease.token == later.lease.token:
                self.broken = self.broken or (
                    f"{claim.lease.token} was verified after {later.lease.token} was claimed"
                )

    def acquired(self, process: Process, lease: Lease) -> None:
        self.claims.append(Claim(process, lease, _instant(self.world.now)))

    # A manifest is final

    def _final(
        self, process: Process | None, name: str, before: bytes | None, now: bytes | None
    ) -> None:
        if name != DONE:
            return
        if self.finished is not None and now != self.finished and not self.harmed:
            raise Broken("the manifest was replaced" if now else "the manifest was removed")
        if process is not None and now is not None and not self.world.landing:
            self.finishers.append(process)
        self.finished = now if now is not None and _manifest(now) is not None else None

    # Consistent at every instant

    def promised(self) -> tuple[str, Files]:
        """Return the state of the mirror, and the files that it names."""
        manifest = _manifest(self.contents.get(DONE, b""))
        if manifest is not None:
            return "finished", manifest
        found = sorted(
            (int(match[1]), int(match[2]), match[3], name)
            for name in self.contents
            if (match := SNAPSHOT.fullmatch(name))
        )
        for *_, checksum, name in reversed(found):
            if xxhash.xxh3_128_hexdigest(self.contents[name]) == checksum:
                if name not in self._named:
                    self._named[name] = _mirrored(self.contents[name])
                return "unfinished", self._named[name]
        return "empty", {}

    def _consistent(self) -> None:
        state, named = self.promised()
        if state == "empty" and self.begun and not self.metadata_harmed:
            raise Broken("no snapshot is intact any more")
        self.begun = self.begun or state != "empty"
        if self.finished is not None and state != "finished":
            raise Broken("a finished run is lost")
        wrong = {
            name
            for name, sha256 in named.items()
            if name not in self.contents or digest(self.contents[name]) != sha256
        }
        if wrong - self.harmed:
            raise Broken(f"{state}, and wrong or missing: {sorted(wrong - self.harmed)}")
        unknown = {name for name, sha256 in named.items() if self.model.get(name) != sha256}
        if unknown:
            raise Broken(f"{state}, and named with another content: {sorted(unknown)}")
        if self.changes % AUDITED == 0:
            self._audit(state, wrong)

    def _audit(self, state: str, wrong: set[str]) -> None:
        self.audits += 1
        found = check_mirror(self.store.open())
        problems = {name for name in found.problems if not name.startswith(".resumerge/")}
        if (found.state, problems) != (state, wrong):
            raise Broken(f"the audit says {found.state}, {problems}; it is {state}, {wrong}")

    def unhindered(self) -> bool:
        return not self.harmed and not self.metadata_harmed

    # The end

    def nothing_is_left_over(self) -> None:
        """Check that the mirror is finished, and contains the model and nothing else."""
        for process in self.finishers:
            if not process.dead and process.outcome != "done":
                raise Broken(f"pid {process.pid} has finished, and says {process.outcome!r}")
        state, named = self.promised()
        if state != "finished":
            raise Broken(f"at the end it is {state}")
        if set(named) != set(self.model):
            raise Broken(f"the manifest names {sorted(named)}")
        if extra := self.store.names() - {DONE, *self.model} - self.backups:
            raise Broken(f"left over: {sorted(extra)}")
        if uploads := self.store.uploads():
            raise Broken(f"uploads are left over: {uploads}")
        same_size = {
            name
            for name in self.harmed
            if name in self.contents and not name.startswith(".resumerge/")
        }
        found = {name: digest(self.contents.get(name, b"")) for name in self.model}
        wrong = {name for name in self.model if found[name] != self.model[name]} - same_size
        if wrong:
            raise Broken(f"finished, and wrong: {sorted(wrong)}")


def _instant(seconds: float) -> float:
    """Round a time, so that equal times are equal however they were computed."""
    return round(seconds, 6)


def _manifest(data: bytes) -> Files | None:
    try:
        content = json.loads(data)
        checksum = content.pop("checksum")
    except (ValueError, KeyError, AttributeError):
        return None
    if checksum != xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode()):
        return None
    return {name: row["sha256"] for name, row in content["files"].items()}


def _mirrored(data: bytes) -> Files:
    """Return the mirrored files that the bytes of a ledger name."""
    with tempfile.NamedTemporaryFile(dir=_memory(), suffix=".db") as file:
        Path(file.name).write_bytes(data)
        with closing(sqlite3.connect(f"file:{file.name}?immutable=1", uri=True)) as db:
            return dict(db.execute("SELECT name, sha256 FROM mirrored"))


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
