"""The ledger and the mirror of a run are brought into agreement before it goes on."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from resumerge.engine.execute.shard_files import PARTIAL
from resumerge.engine.mirrored.abandon import back_up, backup_names
from resumerge.engine.mirrored.mirror_session import MirrorSession, refuse_mirror
from resumerge.engine.resources.disk_errors import is_full, out_of_order
from resumerge.errors import Resumable, refuse
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.mirror.backup_names import CARD
from resumerge.mirror.lease import retry
from resumerge.mirror.lease_record import DONE
from resumerge.mirror.manifest import SHARD, Manifest, missing_files
from resumerge.mirror.state import DAMAGED, FINISHED, FOREIGN, NOTHING, UNFINISHED, MirrorState
from resumerge.mirror.stores.folder import PART
from resumerge.planning.plan import Plan
from resumerge.storage import Storage


class Reconciler:
    """Between the ledger of a run, its output folder and its mirror, which is held."""

    def __init__(self, ledger: Ledger, out: Path, far: MirrorSession, storage: Storage) -> None:
        self._ledger, self._out, self._far, self._storage = ledger, out, far, storage
        self._row: dict[str, Any] = ledger.run() or {}
        self._known = set(ledger.mirrored())

    def reach(self, *, named: bool) -> Manifest | None:
        """Hold the mirror, and take over what it knows of the run and this machine does not.

        Args:
            named: the user named this mirror just now, so that it may be empty.

        Returns:
            The model, where another machine has finished it; then the mirror is not held.

        Raises:
            InputError: it holds something else, or another machine works there.
            Resumable: it has nothing of the run any more, or cannot be reached.
        """
        if self._row["mirror"] == self._far.url:
            self._far.check_mounted()
        with temporary_folder() as folder:
            held = self._far.read_state(folder / "first.db")
            self._check_there(held, named=named)
            if held.what == FINISHED:
                if held.done is None or held.done.run != self._row["id"]:
                    raise refuse_mirror(self._far, held)
                lacking = self._ledger.open_shards()
                whole = self._is_whole_there(held.files, held.done, lacking)
                if whole and lacking:
                    return held.done
            lease = self._far.hold(self._row["id"])
            if held.done is not None and not whole:  # it is to be finished anew
                lease.check()
                self._set_aside(held.done, held.files)
                retry(self._far.store, lambda: self._far.store.put({}, [DONE]))
                self._known |= set(held.done.files)
                named = True
            held = self._far.read_state(folder / LEDGER_FILE)
            self._agree(held, folder / LEDGER_FILE, named=named)
        return None

    def _agree(self, held: MirrorState, path: Path, *, named: bool) -> None:
        if held.what == UNFINISHED:
            with closing(Ledger(path)) as theirs:
                row = theirs.run() or {}
                if (row["id"], row["fingerprint"]) != (self._row["id"], self._row["fingerprint"]):
                    raise refuse_mirror(self._far, held)
                self._own(theirs)
        elif held.what in (FOREIGN, DAMAGED) and not self._are_ours(held):
            raise refuse_mirror(self._far, held)
        else:
            self._check_there(held, named=named)
        if self._row["mirror"] != self._far.url:
            self._change(held)

    def _check_there(self, held: MirrorState, *, named: bool) -> None:
        """A mirror that is empty all of a sudden is none, unless the user says so."""
        if held.what == NOTHING and self._known and not named:
            raise Resumable(
                "mirror",
                f"The mirror at {self._far.url} has nothing of this run any more. If it is a drive,"
                " mount it, then resume; to begin with an empty mirror, name it again: "
                f"--mirror {self._far.url}",
            )

    def _set_aside(self, done: Manifest, there: Mapping[str, int]) -> None:
        """Files beside the shards that somebody edited are kept: they are written anew."""
        store = self._far.store
        edited = [
            name
            for name, (_, sha256) in done.files.items()
            if name in there
            and not name.endswith(SHARD)
            and retry(store, lambda: store.sha256(name, self._far.moved)) != sha256  # noqa: B023
        ]
        names = backup_names(edited, there)
        back_up(self._far, names)
        for name, now in names.items():
            self._ledger.event("file_set_aside", name=name, now=now, mirror=self._far.url)

    def compare(self) -> list[str]:
        """Read what is in the mirror alone, and forget what is not as it was.

        Returns:
            Names of the shards that are whole there, and not here.

        Raises:
            InputError, Resumable: nothing can be read there.
        """
        store = self._far.store
        whole = []
        for name, sha256 in self._ledger.mirrored().items():
            if (self._out / name).is_file():
                continue
            found = retry(store, lambda: store.sha256(name, self._far.moved))  # noqa: B023
            if found == sha256:
                whole.append(name)
            else:
                what = "missing" if found is None else "other bytes"
                self._ledger.event("mirror_damaged", name=name, found=what, mirror=store.url)
                self._ledger.forget_mirrored(name)
        return whole

    def bring_back(self, names: list[str]) -> None:
        """Bring shards here that are in the mirror alone.

        Raises:
            InputError, Resumable: they cannot be read.
        """
        store, noted = self._far.store, self._ledger.mirrored()
        for name in names:
            fetch_from_mirror(self._far, name, noted[name], self._out, self._storage)
            self._ledger.event("brought_back", name=name, mirror=store.url)

    def _own(self, theirs: Ledger) -> None:
        """Another machine may have gone on meanwhile: what it sealed is sealed.

        Not what this one has found to be wrong since, and the mirror does not know of yet.
        """
        forgotten = self._ledger.forgotten_shards()
        there = {n: f for n, f in theirs.mirrored_files().items() if n not in forgotten}
        ours = {shard["name"]: shard for shard in self._ledger.shards()}
        adopted = {}
        for name in theirs.sealed_shards():
            if name in there and name in ours and ours[name]["state"] != "sealed":
                number = ours[name]["number"]
                adopted[number] = theirs.units(number)
                self._storage.remove(self._out / (name + PARTIAL))
        self._ledger.adopt_shards(adopted, {n: f for n, f in there.items() if n in ours})

    def _change(self, held: MirrorState) -> None:
        """The run gets this mirror from now on."""
        away = [name for name in self._ledger.mirrored() if not (self._out / name).is_file()]
        if self._row["mirror"] and away and held.what != UNFINISHED:
            raise refuse(
                "Some shards are only in the mirror that the run has",
                where=self._row["mirror"],
                found=f"{len(away)} shards, like {away[0]}",
                fix=f"bring them here first: `resumerge resume {self._row['id']} --bring-back`",
            )
        known = self._ledger.mirrored_files() if held.what == UNFINISHED else {}
        self._ledger.set_mirror(self._far.url)
        for name, (nbytes, sha256) in known.items():  # the same mirror under another name
            if held.files.get(name) == nbytes:
                self._ledger.note_mirrored(name, nbytes, sha256)

    def _is_whole_there(self, files: Mapping[str, int], done: Manifest, lacking: list[str]) -> bool:
        """Whether a finished model is still there: all by size, what is lacking here by content.

        Where nothing is lacking here, it also has to be known to be there: it may have been found
        damaged there.
        """
        if missing_files(done, files):
            return False
        if not lacking and any(n.endswith(SHARD) and n not in self._known for n in done.files):
            return False
        store = self._far.store
        return all(
            name in done.files
            and retry(store, lambda: store.sha256(name, self._far.moved))  # noqa: B023
            == done.files[name][1]
            for name in lacking
        )

    def _are_ours(self, held: MirrorState) -> bool:
        """Whether files without books that could be used are those that the ledger knows of."""
        names = self._known | set(self._ledger.written_names())
        known = names | {name + PART for name in names}
        return bool(self._known) and set(held.others) - {CARD} <= known


def fetch_from_mirror(
    far: MirrorSession, name: str, sha256: str | None, out: Path, storage: Storage
) -> None:
    """Bring a file of the model here, whole and compared.

    Args:
        sha256: None where it may be any file, as long as it is there.

    Raises:
        Resumable: it is not there, or not as it was, or the disk here is full.
    """
    final = out / name
    fresh = final.with_name(final.name + PARTIAL)
    storage.make_folder(final.parent)
    storage.remove(fresh)

    def download() -> None:
        try:
            far.store.download(name, fresh, far.moved)
        except OSError as error:
            if not is_full(error) and error.filename not in (str(fresh), str(fresh) + PART):
                raise
            for path in (fresh, fresh.with_name(fresh.name + PART)):  # they would fill the disk
                storage.remove(path)
            raise out_of_order(error) from error

    try:
        retry(far.store, download)
    except FileNotFoundError:
        found = None
    else:
        found = _sha256(fresh, far)
    if found is None or (sha256 is not None and found != sha256):
        storage.remove(fresh)
        raise Resumable(
            "mirror", f"{name} in the mirror at {far.url} is not what it was; resume without it"
        )
    storage.sync_file(fresh)
    storage.rename(fresh, final)


def check_fits(plan: Plan, ledger: Ledger) -> None:
    """A ledger that came from a mirror must speak of the same shards and tensors as the plan.

    Raises:
        InputError: it does not; whoever wrote it is not to be trusted.
    """
    shards = [(s.index, s.name, s.nbytes, len(s.header)) for s in plan.shards]
    units = [(u.index, u.name, u.shard, u.offset, u.nbytes, u.blocks) for u in plan.units]
    of_shards = itemgetter("number", "name", "nbytes", "header_bytes")
    of_units = itemgetter("number", "name", "shard", "offset", "nbytes", "blocks")
    known = list(map(of_shards, ledger.shards())), list(map(of_units, ledger.units()))
    if known != (shards, units):
        raise refuse(
            "The ledger does not describe what its recipe makes",
            where=str(ledger.path),
            found="other shards or tensors than the plan has",
            fix=f"do not trust its mirror: delete {ledger.path.parent}, and run the recipe with "
            "another one",
        )


def _sha256(path: Path, far: MirrorSession) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
            far.moved(len(data))
    return digest.hexdigest()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone after."""
    with tempfile.TemporaryDirectory(prefix="resumerge-") as folder:
        yield Path(folder)
