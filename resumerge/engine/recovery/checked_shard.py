"""Compares a shard with its checksums in the ledger, without writing anything."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from resumerge.engine.shards.checksums import first_mismatch
from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import Ledger
from resumerge.planning.plan import Unit
from resumerge.sources.types import REMOTE
from resumerge.tensors import Stored


@dataclass(frozen=True, kw_only=True)
class CheckedShard:
    """The result of comparing a shard with the ledger.

    Args:
        compared: the number of units that were compared.
        pending: the number of units that are not committed, and so have no checksum.
        nbytes: the bytes that were compared and match.
        damaged: a text on the damage of each damaged unit, by its name. It includes units that an
            earlier check found damaged and that were not computed again since.
        lost: the numbers of units that this check found damaged and that have to become pending.
        is_repairable: whether `resume` would compute damaged units again.
        linked: the local model's file to which the damaged shard is a hard link; None otherwise.
            The user has to restore it.
        download: the downloaded file to which the damaged shard is a hard link; None otherwise.
    """

    compared: int
    pending: int
    nbytes: int
    damaged: dict[str, str]
    lost: tuple[int, ...]
    is_repairable: bool
    linked: Path | None
    download: Path | None


def check_shard(
    ledger: Ledger, out: Path, shard: dict[str, Any], only_in_mirror: Mapping[str, str]
) -> CheckedShard:
    """Compare a shard with its checksums in the ledger, without writing anything.

    Args:
        ledger: the ledger of the run that wrote the shard; it is read only.
        out: the output's folder, which lacks the shard if it is only in the mirror.
        shard: the shard's row in the ledger.
        only_in_mirror: a text on the damage of each file that exists only in the mirror, by name;
            the text is empty for an intact file.
    """
    unit_rows = ledger.units.all(shard["number"])
    committed_rows = [row for row in unit_rows if row["committed_blocks"]]
    forgotten_rows = [row for row in unit_rows if not row["committed_blocks"] and row["attempt"]]
    unit_damage = compare_shard(out, shard, committed_rows)
    if shard["name"] in only_in_mirror:
        unit_damage = {row["number"]: only_in_mirror[shard["name"]] for row in committed_rows}
        unit_damage = {number: text for number, text in unit_damage.items() if text}
    linked_file = _file_linked_as(ledger, shard, out) if unit_damage else None
    local_link = linked_file.path if linked_file is not None and not linked_file.is_remote else None
    if local_link is not None:
        link_text = f", which is {local_link} itself"
        unit_damage = {number: text + link_text for number, text in unit_damage.items()}
    lost_units = tuple(unit_damage) if local_link is None else ()
    names_by_number = {row["number"]: row["name"] for row in unit_rows}
    return CheckedShard(
        compared=len(committed_rows),
        pending=len(unit_rows) - len(committed_rows) - len(forgotten_rows),
        nbytes=sum(row["nbytes"] for row in committed_rows if row["number"] not in unit_damage),
        damaged={
            **{row["name"]: "damaged in an earlier check" for row in forgotten_rows},
            **{names_by_number[number]: text for number, text in unit_damage.items()},
        },
        lost=lost_units,
        is_repairable=bool(lost_units or forgotten_rows),
        linked=local_link,
        download=linked_file.path if linked_file is not None and linked_file.is_remote else None,
    )


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
        model_file = Path(source["folder"]) / shard["name"]
        with suppress(OSError):
            if source["kind"] != "lora" and model_file.samefile(out / shard["name"]):
                return _Linked(model_file, source["kind"] in REMOTE)
    return None


def compare_shard(
    out: Path, shard: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> dict[int, str]:
    """Return a text on the damage of each damaged unit of a shard, by the unit's number.

    Args:
        out: the folder of the shard, whose file may have its final or its partial name.
        shard: the row of the shard in the ledger.
        rows: the rows of the units to compare.
    """
    opened_shard = _open_shard(out / shard["name"])
    if opened_shard is None:
        return {row["number"]: f"{shard['name']} is missing" for row in rows}
    path, fd = opened_shard
    try:
        header_bytes = os.pread(fd, shard["header_bytes"], 0)
        if hash_block(header_bytes).hex() != shard["header_checksum"]:
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
    partial_path = final.with_name(final.name + PARTIAL)
    for path in (final, partial_path, final):
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
