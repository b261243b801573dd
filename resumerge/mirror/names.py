"""The names of the metadata files in a mirror: manifest, leases, snapshots of the ledger, tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from resumerge.mirror.stores.base import METADATA

MANIFEST_FILE = f"{METADATA}/done.json"
"""The name of the manifest, which exists if the run is finished."""

LARGEST_TOKEN = 10**9 - 1
"""The largest fencing token that fits into the names."""

_LEASE = re.compile(rf"{re.escape(METADATA)}/lease-([0-9]{{6,9}})\.json", re.ASCII)
_SNAPSHOT = re.compile(
    rf"{re.escape(METADATA)}/ledger-([0-9]{{6,9}})-([0-9]{{6,18}})-([0-9a-f]{{32}})\.db"
)
_TOKEN = re.compile(rf"{re.escape(METADATA)}/(?:lease|ledger)-([0-9]{{6,9}})[-.].*", re.ASCII)
_TASK = re.compile(
    rf"{re.escape(METADATA)}/task-([0-9]{{6,9}})-(shard[0-9]{{1,6}}-[0-9]{{1,6}})\.json", re.ASCII
)
_METADATA = re.compile(
    rf"{re.escape(METADATA)}/"
    r"(ledger-[0-9]{6,9}-[0-9]{6,18}-[0-9a-f]{32}\.db|lease-[0-9]{6,9}\.json|done\.json"
    r"|task-[0-9]{6,9}-shard[0-9]{1,6}-[0-9]{1,6}\.json"
    r"|probe-[0-9a-f]{8}-\d|clock-[0-9a-f]{8})(\.part)?"
)


@dataclass(frozen=True, order=True)
class SnapshotName:
    """The name of a snapshot; the greatest name is the newest snapshot's.

    Args:
        token: the fencing token of the machine that wrote it.
        number: the number of the snapshot among those with this token.
        checksum: the xxh3-128 of the file, 32 hex digits.
    """

    token: int
    number: int
    checksum: str

    @property
    def name(self) -> str:
        """The file's name in the mirror."""
        return f"{METADATA}/ledger-{self.token:06}-{self.number:06}-{self.checksum}.db"


@dataclass(frozen=True, order=True)
class TaskName:
    """The name of the file through which a task of a cluster and its driver communicate.

    Args:
        token: the fencing token of the driver.
        task: the task's id, ``shardN-TRY``.
    """

    token: int
    task: str

    @property
    def shard(self) -> int:
        """The number of the shard that is computed."""
        return int(self.task.removeprefix("shard").partition("-")[0])

    @property
    def name(self) -> str:
        """The file's name in the mirror."""
        return f"{METADATA}/task-{self.token:06}-{self.task}.json"


def task_names(names: Iterable[str]) -> list[TaskName]:
    """Return the files of tasks among some names, sorted."""
    matches = (_TASK.fullmatch(name) for name in names)
    return sorted(TaskName(int(match[1]), match[2]) for match in matches if match)


def snapshot_names(names: Iterable[str]) -> list[SnapshotName]:
    """Return the snapshots among some names, newest first. Their content is not verified."""
    matches = (_SNAPSHOT.fullmatch(name) for name in names)
    return sorted(
        (SnapshotName(int(match[1]), int(match[2]), match[3]) for match in matches if match),
        reverse=True,
    )


def lease_name(token: int) -> str:
    """Return the name of the lease with a fencing token."""
    return f"{METADATA}/lease-{token:06}.json"


def leases(names: Iterable[str]) -> dict[int, str]:
    """Return the leases among some names, by their fencing token."""
    return {int(match[1]): name for name in names if (match := _LEASE.fullmatch(name))}


def fencing_tokens(names: Iterable[str]) -> list[int]:
    """Return the fencing tokens of all leases and snapshots among some names."""
    return [int(match[1]) for name in names if (match := _TOKEN.fullmatch(name))]


def metadata_in(names: Iterable[str]) -> set[str]:
    """Return the metadata files of a run among some names, also incomplete ones."""
    return {name for name in names if _METADATA.fullmatch(name)}
