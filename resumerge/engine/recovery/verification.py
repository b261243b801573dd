"""The result of a verification, and its document."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
        run: the id of the run whose output or mirror was verified.
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
