"""Verification: reads an output or a mirror, and compares it with the ledger's checksums."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from resumerge.engine.mirror_session.checks import refuse_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.recovery.open_ledger import open_ledger, read_ledger
from resumerge.engine.recovery.ownership import has_checksum
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.lock import LOCK_FILE, lock_holder, run_lock
from resumerge.engine.resources.resource_errors import resumable_disk_errors
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.engine.shards.checksums import first_mismatch
from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.event_kinds import EventKind
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore, named_output
from resumerge.mirror.damaged_files import find_damaged
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.output_path import CARD, OutputPath
from resumerge.planning.plan import Unit
from resumerge.sources import MetadataCache
from resumerge.sources.types import REMOTE
from resumerge.storage import Storage
from resumerge.tensors import Stored


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """The result of computing blocks of a run again.

    Args:
        blocks: the number of blocks that were computed and compared.
        committed: the number of blocks that the run has committed.
        nbytes: the bytes of output that were compared.
        seed: the seed of the random sample; None if every committed block was compared.
        differing: the number of the first block that differs, by tensor.
        changed: the paths of source files that have changed since the run read them, according to
            the filesystem.
    """

    blocks: int
    committed: int
    nbytes: int
    seed: int | None
    differing: dict[str, int]
    changed: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the part ``sources`` of the document of ``verify --json``."""
        return {
            "blocks": {"compared": self.blocks, "committed": self.committed},
            "bytes": self.nbytes,
            "seed": self.seed,
            "differing": [{"name": n, "block": block} for n, block in self.differing.items()],
            "changed": list(self.changed),
        }


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of a verification.

    Args:
        run: the run's id.
        output: the output as the user named it, or the place of the verified mirror.
        units: the number of units that were compared, or are in files that were compared.
        nbytes: the bytes that were compared and are intact.
        damaged: a text on the damage of each damaged or missing unit or file, by its name.
        pending: the number of units that are not committed, and so have no checksum.
        marked: whether the ledger records the damage, so that ``resume`` repairs it. False if
            another process works on the run, or the ledger is read-only.
        mirror: the address of the verified mirror; None if the output was verified.
        files: the number of the mirror's files that were compared.
        remake: whether the mirror holds a finished run that is not on this machine, so that only a
            new run can repair the damage.
        linked: the paths of damaged files of local models to which shards are hard links
            (``--link``). The user has to restore them. The ledger records no damage of these
            shards.
        recomputed: the result of computing blocks again from the models; None without
            ``--sources``.
    """

    run: str
    output: Path | str
    units: int
    nbytes: int
    pending: int
    damaged: dict[str, str]
    marked: bool = True
    mirror: str | None = None
    files: int = 0
    remake: bool = False
    linked: tuple[str, ...] = ()
    recomputed: Recomputation | None = None

    @property
    def intact(self) -> bool:
        """Whether all compared bytes match the ledger."""
        return not self.damaged

    @property
    def is_deleted(self) -> bool:
        """Whether the whole output on this machine is missing."""
        is_local = self.mirror is None and isinstance(self.output, Path)
        return is_local and bool(self.damaged) and not os.path.lexists(self.output)

    @property
    def where(self) -> str:
        """The mirror's address, or the output as the user named it."""
        return self.mirror or str(self.output)

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``verify --json``."""
        return {
            "run": self.run,
            "output": self.where,
            "mirror": self.mirror,
            "intact": self.intact,
            "units": {"compared": self.units, "pending": self.pending},
            "bytes": self.nbytes,
            **({"files": self.files} if self.mirror is not None else {}),
            "damaged": [{"name": n, "found": found} for n, found in self.damaged.items()],
            "marked": self.marked,
            "linked": list(self.linked),
            **({"sources": self.recomputed.as_json()} if self.recomputed is not None else {}),
        }


def verify_run(folder: Path, storage: Storage) -> Verification:
    """Read every committed block of a run's output, and compare it with its checksum.

    Damaged units become pending in the ledger, so that ``resume`` computes them again. If another
    process works on the run, or the ledger is not writable, the ledger stays unchanged.

    Raises:
        InputError: neither the ledger nor its snapshot can be used.
        Resumable: the output cannot be read now.
    """
    with resumable_disk_errors():
        if lock_holder(folder) is not None or not _is_writable(folder):
            return _verify(folder, read_ledger(folder), mark=False)
        with run_lock(folder, folder.name):
            return _verify(folder, open_ledger(folder, storage)[0], mark=True)


def verify_mirror(url: str, home: RunStore, storage: Storage) -> Verification:
    """Compare the files of a mirror with the checksums of its snapshot or manifest.

    Nothing is written to the mirror. If this machine has the run, the damaged files are removed
    from the run's table ``mirrored``, so that ``resume`` uploads them again.

    Raises:
        InputError: the mirror contains no run.
        Resumable: the mirror cannot be read now.
    """
    mirror = MirrorSession(url, Options(), Reporter(), StopRequest())
    with TemporaryFolder() as folder, resumable_disk_errors():
        path = folder / LEDGER_FILE
        state = mirror.read_state(path)
        if state.manifest is not None:
            run, files = state.manifest.run, dict(state.manifest.files)
            compared, pending = state.manifest.units, 0
        elif state.snapshot:
            with closing(Ledger(path, read_only=True)) as ledger:
                run = ledger.run()["id"]
                files = ledger.mirrored.files()
                mirrored = [shard["name"] in files for shard in ledger.shards.all()]
                in_mirror = [mirrored[unit["shard"]] for unit in ledger.units.all()]
                compared, pending = in_mirror.count(True), in_mirror.count(False)
        else:
            raise refuse_mirror(mirror, state)
        if state.manifest is not None and CARD in state.files:
            files.pop(CARD, None)
        damaged = retry_store(mirror.store, lambda: find_damaged(mirror.store, files, mirror.moved))
        run_here = next((folder for folder in home.runs() if folder.name == run), None)
        marked = (
            bool(damaged)
            and run_here is not None
            and _note_damage(run_here, mirror, damaged, storage)
        )
        remake = state.manifest is not None and run_here is None
        nbytes = sum(size for name, (size, _) in files.items() if name not in damaged)
        return Verification(
            run=run,
            output=mirror.store.local_folder or mirror.url,
            units=compared,
            nbytes=nbytes,
            pending=pending,
            damaged=damaged,
            marked=marked,
            mirror=mirror.url,
            files=len(files),
            remake=remake,
        )


def _note_damage(
    folder: Path, mirror: MirrorSession, damaged: Iterable[str], storage: Storage
) -> bool:
    """Record damaged files of a mirror in the run's ledger, and return whether that was possible.

    The ledger is not changed if another process works on the run, if the ledger is read-only, or if
    the run has another mirror.
    """
    if lock_holder(folder) is not None or not _is_writable(folder):
        return False
    with run_lock(folder, folder.name):
        ledger, _ = open_ledger(folder, storage)
        try:
            if ledger.run()["mirror"] != mirror.url:
                return False
            for name in damaged:
                ledger.events.add(
                    EventKind.MIRROR_DAMAGED, name=name, found="verify", mirror=mirror.url
                )
                ledger.mirrored.forget(name)
            ledger.set_state("interrupted")
            return True
        finally:
            ledger.close()


def _is_writable(folder: Path) -> bool:
    files = [folder, *(folder / name for name in (LEDGER_FILE, LOCK_FILE))]
    return all(os.access(path, os.W_OK) for path in files if path.exists())


def _verify(folder: Path, ledger: Ledger, *, mark: bool) -> Verification:
    try:
        output = OutputPath(Path(ledger.run()["output"]))
        only_in_mirror = _damage_in_mirror(ledger, output.folder)
        shards: list[_CheckedShard] = []
        for row in ledger.shards.all():
            shard = _check_shard(ledger, output.folder, row, only_in_mirror)
            shards.append(shard)
            if shard.download is not None:
                MetadataCache(folder.parent).forget_verdict(shard.download)
        companions = _damaged_companions(ledger, output.folder)
        damaged = {name: text for shard in shards for name, text in shard.damaged.items()}
        damaged.update(companions)
        lost = [number for shard in shards for number in shard.lost]
        if mark and lost:
            ledger.units.forget(lost, EventKind.VERIFY_FOUND_DAMAGE, names=list(damaged)[:5])
        if mark and (companions or any(shard.is_mendable for shard in shards)):
            ledger.set_state("interrupted")
        url = ledger.run()["mirror"]
        return Verification(
            run=folder.name,
            output=named_output(output.path, url),
            units=sum(shard.compared for shard in shards),
            nbytes=sum(shard.nbytes for shard in shards),
            pending=sum(shard.pending for shard in shards),
            damaged=damaged,
            marked=mark,
            linked=tuple(str(shard.linked) for shard in shards if shard.linked is not None),
        )
    finally:
        ledger.close()


@dataclass(frozen=True, kw_only=True)
class _CheckedShard:
    """The result of comparing a shard with the ledger.

    Args:
        compared: the number of units that were compared.
        pending: the number of units that are not committed, and so have no checksum.
        nbytes: the bytes that were compared and match.
        damaged: a text on the damage of each damaged unit, by its name. It includes units that an
            earlier check found damaged and that were not computed again since.
        lost: the numbers of units that this check found damaged and that have to become pending.
        is_mendable: whether `resume` would compute damaged units again.
        linked: the local model's file to which the damaged shard is a hard link; None otherwise.
            The user has to restore it.
        download: the downloaded file to which the damaged shard is a hard link; None otherwise.
    """

    compared: int
    pending: int
    nbytes: int
    damaged: dict[str, str]
    lost: tuple[int, ...]
    is_mendable: bool
    linked: Path | None
    download: Path | None


def _check_shard(
    ledger: Ledger, out: Path, shard: dict[str, Any], only_in_mirror: Mapping[str, str]
) -> _CheckedShard:
    """Compare a shard with its checksums in the ledger, without writing anything.

    Args:
        ledger: the run's ledger.
        out: the output's folder.
        shard: the shard's row in the ledger.
        only_in_mirror: the result of `_damage_in_mirror`.
    """
    rows = ledger.units.all(shard["number"])
    committed = [row for row in rows if row["committed_blocks"]]
    forgotten = [row for row in rows if not row["committed_blocks"] and row["attempt"]]
    unit_damage = compare_shard(out, shard, committed)
    if shard["name"] in only_in_mirror:
        unit_damage = {row["number"]: only_in_mirror[shard["name"]] for row in committed}
        unit_damage = {number: text for number, text in unit_damage.items() if text}
    source = _file_linked_as(ledger, shard, out) if unit_damage else None
    linked = source.path if source is not None and not source.is_remote else None
    if linked is not None:
        link_text = f", which is {linked} itself"
        unit_damage = {number: text + link_text for number, text in unit_damage.items()}
    lost = tuple(unit_damage) if linked is None else ()
    names = {row["number"]: row["name"] for row in rows}
    return _CheckedShard(
        compared=len(committed),
        pending=len(rows) - len(committed) - len(forgotten),
        nbytes=sum(row["nbytes"] for row in committed if row["number"] not in unit_damage),
        damaged={
            **{row["name"]: "damaged in an earlier check" for row in forgotten},
            **{names[number]: text for number, text in unit_damage.items()},
        },
        lost=lost,
        is_mendable=bool(lost or forgotten),
        linked=linked,
        download=source.path if source is not None and source.is_remote else None,
    )


def _damaged_companions(ledger: Ledger, out: Path) -> dict[str, str]:
    """Return a text on each damaged companion except the model card, by the file's name."""
    return {
        name: "the file differs or is missing"
        for name, checksum in ledger.companions.checksums().items()
        if name != CARD and not has_checksum(out / name, checksum)
    }


class _Linked(NamedTuple):
    """The file of a model to which a shard is a hard link."""

    path: Path
    is_remote: bool


def _file_linked_as(ledger: Ledger, shard: dict[str, Any], out: Path) -> _Linked | None:
    """Return the file of a model to which a shard is a hard link, or None.

    Only a copied shard can be a link. It has the same name as the model's file.
    """
    if not shard["copied"]:
        return None
    for source in ledger.sources():
        file = Path(source["folder"]) / shard["name"]
        with suppress(OSError):
            if source["kind"] != "lora" and file.samefile(out / shard["name"]):
                return _Linked(file, source["kind"] in REMOTE)
    return None


def _damage_in_mirror(ledger: Ledger, out: Path) -> dict[str, str]:
    """Return a text on the damage of each file that exists only in the mirror, by name.

    The text is empty for an intact file.
    """
    run = ledger.run()
    checksums = {n: s for n, s in ledger.mirrored.checksums().items() if not (out / n).exists()}
    if not checksums:
        return {}
    store = open_store(run["mirror"])
    damage = {}
    for name, sha256 in checksums.items():
        present = retry_store(store, lambda: store.sha256(name, lambda nbytes: None))  # noqa: B023
        damage[name] = "" if present == sha256 else f"{name} in {store.url} {_differs(present)}"
    return damage


def _differs(sha256: str | None) -> str:
    return "is missing" if sha256 is None else "differs"


def compare_shard(
    out: Path, shard: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> dict[int, str]:
    """Return a text on the damage of each damaged unit of a shard, by the unit's number.

    Args:
        out: the folder of the shard.
        shard: the row of the shard in the ledger.
        rows: the rows of the units to compare.
    """
    opened = _open_shard(out / shard["name"])
    if opened is None:
        return {row["number"]: f"{shard['name']} is missing" for row in rows}
    path, fd = opened
    try:
        head = os.pread(fd, shard["header_bytes"], 0)
        if hash_block(head).hex() != shard["header_checksum"]:
            return {row["number"]: f"the header of {path.name} differs" for row in rows}
        unit_damage = {}
        for row in rows:
            index = first_mismatch(fd, unit_of_row(row), row["block_hashes"])
            if index is not None:
                unit_damage[row["number"]] = f"block {index} differs in {path.name}"
        return unit_damage
    finally:
        os.close(fd)


def _open_shard(final: Path) -> tuple[Path, int] | None:
    """Open a shard by its final or partial name, even if another process renames it meanwhile."""
    partial = final.with_name(final.name + PARTIAL)
    for path in (final, partial, final):
        with suppress(FileNotFoundError):
            return path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def unit_of_row(row: dict[str, Any]) -> Unit:
    """Return the unit of a row, with its place in the output and a placeholder as expression."""
    shape = tuple(json.loads(row["shape"]))
    return Unit(
        number=row["number"],
        name=row["name"],
        dtype=row["dtype"],
        shape=shape,
        shard=row["shard"],
        offset=row["offset"],
        nbytes=row["nbytes"],
        block_elements=row["block_elements"],
        expression=Stored(row["name"], row["dtype"], shape, "", row["offset"]),
    )
