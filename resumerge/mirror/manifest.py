"""The end of a mirror: the files beside the shards, then the word that it is whole.

`done.json` names every file of the model with its bytes and SHA-256. From the moment that it is
there the ledger's snapshots are not needed any more.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from resumerge.ledger import Ledger, now
from resumerge.mirror.conflicts import ConflictKeeper, metadata_in
from resumerge.mirror.lease_record import DONE as MANIFEST_FILE
from resumerge.mirror.lease_record import epochs, lease_name
from resumerge.mirror.ledger_import import is_folder_name, is_safe_name
from resumerge.mirror.snapshots import snapshots
from resumerge.mirror.stores.base import Moved, Store

LAST_EPOCH = 10**9

_WORD = re.compile("[A-Za-z0-9_-]{1,100}")

SHARD = ".safetensors"
"""At the end of a shard's name, and of no other file's."""

SMALL = 4 << 20
"""Bytes that are written at once; a larger file is uploaded."""

Companions = Iterable[tuple[str, "bytes | Path"]]
"""The files beside the shards, config.json last: their names, and their bytes or where they are."""


@dataclass(frozen=True)
class Manifest:
    """What a finished mirror says of itself.

    Args:
        run: id.
        fingerprint: of the recipe and its sources.
        files: bytes and SHA-256 (hex digits) of each file, by name.
        seed, shard_size: that it was made with.
        output: name of the output folder, without those above it; None where it is not known.
    """

    run: str
    fingerprint: str
    files: Mapping[str, tuple[int, str]]
    seed: int | None = None
    shard_size: int | None = None
    output: str | None = None


def read_manifest(store: Store) -> Manifest | None:
    """What `done.json` says; None where it is not there, or not whole.

    Raises:
        OSError: the mirror cannot be read now.
    """
    try:
        said = json.loads(store.get(MANIFEST_FILE))
        checksum = said.pop("checksum")
        if checksum != _checksum(said):
            return None
        files = {name: (row["bytes"], row["sha256"]) for name, row in said["files"].items()}
        name = said.get("output")
        done = Manifest(
            run=said["run"],
            fingerprint=said["fingerprint"],
            files=files,
            seed=said["seed"],
            shard_size=said["shard_size"],
            output=name if is_folder_name(name) else None,
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return done if _is_fit(done) else None


def _is_fit(done: Manifest) -> bool:
    """Whether it can be what a run of ours said; anybody may have written it."""
    said = (done.run, done.fingerprint, *(sha256 for _, sha256 in done.files.values()))
    return (
        all(isinstance(text, str) and _WORD.fullmatch(text) for text in said)
        and all(map(is_safe_name, done.files))
        and all(isinstance(n, int) and n >= 0 for n, _ in done.files.values())
        and all(isinstance(n, int | None) for n in (done.seed, done.shard_size))
    )


def missing_files(done: Manifest, there: Mapping[str, int]) -> list[str]:
    """Names of files that a finished mirror lacks: shards that are missing or of another size, and
    missing files beside them. The latter may have been edited since.

    Args:
        there: bytes of every file that is there, by name.
    """
    return sorted(
        name
        for name, (nbytes, _) in done.files.items()
        if name not in there or (name.endswith(SHARD) and there[name] != nbytes)
    )


def complete(
    store: Store, companions: Companions, keeper: ConflictKeeper, moved: Moved
) -> Iterator[tuple[str, int, str]]:
    """Bring the files beside the shards there, over those of an earlier try.

    Args:
        keeper: of files that are not ours.

    Yields:
        Of each its name, bytes and SHA-256.

    Raises:
        Resumable: another file is in the place of one of them.
        OSError: the mirror cannot be used now.
    """
    there = store.list()
    for group in _groups(companions):
        moved(0)
        group = {n: d for n, d in group.items() if keeper.make_way(n, d, there.get(n))}
        small = {name: data for name, data in group.items() if isinstance(data, bytes)}
        if small:
            store.put(small)
            moved(sum(map(len, small.values())))
        for name, data in small.items():
            yield name, len(data), hashlib.sha256(data).hexdigest()
        for name, path in group.items():
            if isinstance(path, Path):
                yield name, path.stat().st_size, store.upload(name, path, moved)


def say_done(
    store: Store, ledger: Ledger, epoch: int, files: Mapping[str, tuple[int, str]]
) -> None:
    """Say that a mirror is whole, and remove the bookkeeping.

    Args:
        epoch: of the lease; what another machine wrote that has taken over since stays.
        files: bytes and SHA-256 of each file of the model.

    Raises:
        OSError: the mirror cannot be used now.
    """
    run = ledger.run() or {}
    began = json.loads(run["options"])
    said = {
        "run": run["id"],
        "fingerprint": run["fingerprint"],
        "seed": began.get("seed"),
        "shard_size": began.get("shard_size"),
        "output": Path(run["output"]).name,
        "finished": now(),
        "files": {name: {"bytes": n, "sha256": sha256} for name, (n, sha256) in files.items()},
    }
    text = json.dumps({**said, "checksum": _checksum(said)}, indent=2)
    store.put({MANIFEST_FILE: text.encode()}, _leftovers(store.list(), epoch, files))


def remove_metadata(store: Store) -> None:
    """Remove what a finished mirror has besides the model, where that was cut off.

    Raises:
        OSError: the mirror cannot be used now.
    """
    done = read_manifest(store)
    if done is not None and (rest := _leftovers(store.list(), LAST_EPOCH, done.files)):
        store.put({}, rest)


def _groups(companions: Companions) -> Iterator[dict[str, bytes | Path]]:
    """The files, in their order: a large one alone, small ones together as far as memory goes."""
    group: dict[str, bytes | Path] = {}
    nbytes = 0
    for name, content in companions:
        if isinstance(content, Path) and content.stat().st_size <= SMALL:
            content = content.read_bytes()
        size = len(content) if isinstance(content, bytes) else SMALL
        if group and nbytes + size > SMALL:
            yield group
            group, nbytes = {}, 0
        group[name] = content.resolve() if isinstance(content, Path) else content
        nbytes += size
    if group:
        yield group


def _leftovers(there: Iterable[str], epoch: int, files: Iterable[str]) -> list[str]:
    """What is there besides the model: bookkeeping, and beginnings of files of the model.

    Leases come last: while there is anything else of ours, it is known whose it is.
    """
    names = set(there)
    later = {old.name for old in snapshots(names) if old.epoch > epoch}
    later |= {lease_name(n) for n in epochs(names) if n > epoch}
    books = metadata_in(names) - {MANIFEST_FILE}
    parts = {f"{name}.part" for name in files} & names
    leases = {lease_name(n) for n in epochs(names)}
    return sorted((books | parts) - later, key=lambda name: (name in leases, name))


def _checksum(said: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())
