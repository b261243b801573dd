"""The manifest, ``done.json``: the last file that a mirrored run writes.

The manifest lists every file of the model with its size and SHA-256. Once it exists, the leases and
the snapshots of the ledger are no longer needed, and are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from resumerge.host.memory import peak_rss
from resumerge.ledger import Ledger, Row, now
from resumerge.ledger.file_names import is_output_name, is_safe_name
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validators import integer, time
from resumerge.ledger.validity import InvalidLedger, check_values
from resumerge.mirror.names import (
    LARGEST_TOKEN,
    MANIFEST_FILE,
    fencing_tokens,
    lease_name,
    metadata_in,
    snapshot_names,
    task_names,
)
from resumerge.mirror.stores.base import Store
from resumerge.output_path import is_weights

LARGEST_MANIFEST = 1 << 24
"""The largest size of a manifest in bytes."""

_IDENTIFIER = re.compile("[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True)
class Manifest:
    """The content of a finished mirror.

    Args:
        run: the run's id, as in the ledger of the machine that finished it.
        fingerprint: the fingerprint of the recipe and its sources.
        files: the size in bytes and SHA-256 (hex digits) of each file, by name.
        created: the time when the run was created, ISO 8601.
        units: the number of units of the run, all of them committed.
        attempts: the rows of the ledger's table of attempts, in order.
        seed: the seed that the run was started with; None if it had none.
        shard_size: the size of shards in bytes that the run was started with; None if not set.
        output: the last part of the output's path; None if it is not a valid name.
        token: the fencing token of the machine that finished the run; 0 if unknown. The leases were
            removed, so a process that opens the mirror again derives a higher token from this one.
    """

    run: str
    fingerprint: str
    files: Mapping[str, tuple[int, str]]
    created: str
    units: int
    attempts: Sequence[Row]
    seed: int | None = None
    shard_size: int | None = None
    output: str | None = None
    token: int = 0


def read_manifest(store: Store) -> Manifest | None:
    """Return the manifest of a mirror; None if it does not exist or is not intact.

    Raises:
        OSError: the mirror cannot be read now.
    """
    try:
        return _parse(store.get(MANIFEST_FILE, LARGEST_MANIFEST))
    except FileNotFoundError:
        return None


def _parse(data: bytes) -> Manifest | None:
    """Return the manifest in untrusted bytes; None if they are not a valid manifest."""
    try:
        content = json.loads(data)
        checksum = content.pop("checksum")
        if checksum != _checksum(content):
            return None
        name, columns = content.get("output"), TABLES["attempts"].imported
        manifest = Manifest(
            run=content["run"],
            fingerprint=content["fingerprint"],
            files={n: (row["bytes"], row["sha256"]) for n, row in content["files"].items()},
            created=content["created"],
            units=content["units"],
            attempts=[{name: row.get(name) for name in columns} for row in content["attempts"]],
            seed=content["seed"],
            shard_size=content["shard_size"],
            output=name if is_output_name(name) else None,
            token=content.get("token", 0),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return manifest if _is_valid(manifest) else None


def _is_valid(manifest: Manifest) -> bool:
    """Return whether every value of an untrusted manifest is valid."""
    hashes = (sha256 for _, sha256 in manifest.files.values())
    return (
        all(
            isinstance(text, str) and _IDENTIFIER.fullmatch(text)
            for text in (manifest.run, manifest.fingerprint, *hashes)
        )
        and all(map(is_safe_name, manifest.files))
        and all(isinstance(n, int) and n >= 0 for n, _ in manifest.files.values())
        and all(isinstance(n, int | None) for n in (manifest.seed, manifest.shard_size))
        and time(manifest.created)
        and integer()(manifest.units)
        and isinstance(manifest.token, int)
        and 0 <= manifest.token <= LARGEST_TOKEN
        and _are_attempts(manifest.attempts)
    )


def _are_attempts(rows: Sequence[Row]) -> bool:
    try:
        check_values("attempts", rows, TABLES["attempts"].imported)
    except InvalidLedger:
        return False
    return True


def is_same_model(one: bytes, other: bytes) -> bool:
    """Return whether two contents are manifests of one run, with the same files and hashes."""
    first_manifest, second_manifest = _parse(one), _parse(other)
    if first_manifest is None or second_manifest is None:
        return False
    return (first_manifest.run, first_manifest.files) == (
        second_manifest.run,
        second_manifest.files,
    )


def missing_files(manifest: Manifest, listed: Mapping[str, int]) -> list[str]:
    """Return the names of missing files in a finished mirror, and of shards with a wrong size.

    The sizes of companions are not compared, because the user may have edited companions.

    Args:
        manifest: the manifest that was read from the mirror.
        listed: the size in bytes of every file in the mirror, by name.
    """
    return sorted(
        name
        for name, (nbytes, _) in manifest.files.items()
        if name not in listed or (is_weights(name) and listed[name] != nbytes)
    )


def manifest_of(ledger: Ledger, files: Mapping[str, tuple[int, str]], token: int) -> bytes:
    """Return the content of the manifest of a run that has just finished.

    Args:
        ledger: the ledger of the run, in which the last attempt counts as running.
        files: the size in bytes and SHA-256 (hex digits) of each file of the model, by name.
        token: the fencing token of the lease.
    """
    run = ledger.run()
    options = json.loads(run["options"])
    content = {
        "run": run["id"],
        "fingerprint": run["fingerprint"],
        "seed": options.get("seed"),
        "shard_size": options.get("shard_size"),
        "output": Path(run["output"]).name,
        "token": token,
        "created": run["created"],
        "finished": now(),
        "units": ledger.totals().units,
        "attempts": _attempts(ledger),
        "files": {name: {"bytes": n, "sha256": sha256} for name, (n, sha256) in files.items()},
    }
    return json.dumps({**content, "checksum": _checksum(content)}, indent=2).encode()


def write_manifest(store: Store, manifest: bytes, token: int, files: Iterable[str]) -> None:
    """Write the manifest, and remove the other metadata.

    If the mirror has a manifest of this run with the same files, that manifest is kept: another
    machine may have finished the run while this one was suspended.

    Args:
        store: the store of the mirror, which has every file that the manifest lists.
        manifest: the new content of the manifest, as `manifest_of` returns it.
        token: the fencing token of the lease. Metadata with a higher token is kept.
        files: the names of the files of the model, whose unfinished uploads are removed.

    Raises:
        OSError: the mirror cannot be used now, or has the manifest of another run.
    """
    files = list(files)
    store.abandon_uploads(files)
    mirror_sizes = store.list()
    present_bytes = store.get(MANIFEST_FILE) if MANIFEST_FILE in mirror_sizes else None
    removable_names = _to_remove(mirror_sizes, token, files)
    old_manifest, new_manifest = _parse(present_bytes or b""), _parse(manifest)
    if (
        old_manifest is not None
        and new_manifest is not None
        and old_manifest.run != new_manifest.run
    ):
        raise OSError(f"{store.url} has the manifest of another run")
    if present_bytes is not None and is_same_model(present_bytes, manifest):
        manifest = present_bytes
    if not store.put_if_unchanged(MANIFEST_FILE, manifest, present_bytes, removable_names):
        raise OSError(f"Another manifest was written to {store.url} at the same time")


def _attempts(ledger: Ledger) -> list[Row]:
    """Return the attempts of a run. The last one, which is still running, is returned as done."""
    rows = ledger.attempts.all()
    for row in rows[-1:]:
        ended_at = now()
        row |= {"outcome": "done", "ended": ended_at, "last_seen": ended_at, "peak_rss": peak_rss()}
    return [{name: row[name] for name in TABLES["attempts"].imported} for row in rows]


def remove_metadata(store: Store, token: int = LARGEST_TOKEN) -> None:
    """Remove the metadata that is left in a finished mirror, except the manifest.

    An unfinished mirror is not changed.

    Args:
        store: the store of a mirror, finished or not.
        token: the highest fencing token of the metadata to remove.

    Raises:
        OSError: the mirror cannot be used now.
    """
    manifest = read_manifest(store)
    if manifest and (removable_names := _to_remove(store.list(), token, manifest.files)):
        store.put({}, removable_names)


def _to_remove(listed: Iterable[str], token: int, files: Iterable[str]) -> list[str]:
    """Return the names of metadata up to a fencing token, and of incomplete files of the model.

    Leases come last, because they identify the owner of the other metadata.
    """
    names = set(listed)
    all_leases = {lease_name(n) for n in fencing_tokens(names)}
    later_metadata = {snapshot.name for snapshot in snapshot_names(names) if snapshot.token > token}
    later_metadata |= {lease_name(n) for n in fencing_tokens(names) if n > token}
    later_metadata |= {task.name for task in task_names(names) if task.token > token}
    metadata = metadata_in(names) - {MANIFEST_FILE}
    incomplete_files = {f"{name}.part" for name in files} & names
    return sorted(
        (metadata | incomplete_files) - later_metadata, key=lambda name: (name in all_leases, name)
    )


def _checksum(content: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())
