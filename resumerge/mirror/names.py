"""The names of the metadata files in a mirror: manifest, leases, snapshots of the ledger, tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from resumerge.mirror.stores.base import METADATA

MANIFEST_FILE = f"{METADATA}/done.json"
"""The name of the manifest. The run is finished if this file exists."""

LARGEST_TOKEN = 10**9 - 1
"""The largest fencing token that fits into a file's name."""

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
    """The name of a snapshot. Names compare by age: a newer snapshot's name is greater.

    Args:
        token: the fencing token of the machine that wrote the snapshot.
        number: the number of the snapshot among all with this token, from 1.
        checksum: the xxh3-128 of the file, 32 hex digits.
    """

    token: int
    number: int
    checksum: str

    @property
    def name(self) -> str:
        """The name of the snapshot's file in the mirror."""
        return f"{METADATA}/ledger-{self.token:06}-{self.number:06}-{self.checksum}.db"


@dataclass(frozen=True, order=True)
class TaskName:
    """The name of the file by which a task of a cluster and its driver communicate.

    Args:
        token: the fencing token of the driver.
        task: the task's id, ``shardN-TRY``: the number of the shard, and of the try.
    """

    token: int
    task: str

    @property
    def shard(self) -> int:
        """The number of the shard that the task computes."""
        return int(self.task.removeprefix("shard").partition("-")[0])

    @property
    def name(self) -> str:
        """The name of the task's file in the mirror."""
        return f"{METADATA}/task-{self.token:06}-{self.task}.json"


def task_names(names: Iterable[str]) -> list[TaskName]:
    """Return the names of tasks' files among some names, sorted."""
    matches = (_TASK.fullmatch(name) for name in names)
    return sorted(TaskName(int(match[1]), match[2]) for match in matches if match)


def snapshot_names(names: Iterable[str]) -> list[SnapshotName]:
    """Return the names of snapshots among some names, newest first. No content is verified."""
    matches = (_SNAPSHOT.fullmatch(name) for name in names)
    return sorted(
        (SnapshotName(int(match[1]), int(match[2]), match[3]) for match in matches if match),
        reverse=True,
    )


def lease_name(token: int) -> str:
    """Return the name of the lease with a fencing token."""
    return f"{METADATA}/lease-{token:06}.json"


def leases(names: Iterable[str]) -> dict[int, str]:
    """Return the names of leases among some names, by fencing token."""
    return {int(match[1]): name for name in names if (match := _LEASE.fullmatch(name))}


def fencing_tokens(names: Iterable[str]) -> list[int]:
    """Return the fencing tokens of all leases and snapshots among some names."""
    return [int(match[1]) for name in names if (match := _TOKEN.fullmatch(name))]


def metadata_in(names: Iterable[str]) -> set[str]:
    """Return the names of a run's metadata files among some names, including incomplete files."""
    return {name for name in names if _METADATA.fullmatch(name)}
