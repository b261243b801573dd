"""Mirrors in a folder: snapshots of the ledger, the manifest, leases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import xxhash

from fuzz import tiny_files
from fuzz.changes.databases import change_database
from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.changes.trees import changed, changed_json
from fuzz.kinds.base import MERGE, Commands, Kind
from fuzz.kinds.ledgers import RECIPE
from fuzz.runs import DONE, HALF, make_finished, make_unfinished
from resumerge.mirror.names import MANIFEST_FILE, SnapshotName, lease_name, snapshot_names
from resumerge.mirror.stores.base import METADATA

MIRRORS = {HALF: "mirror-half", DONE: "mirror-done"}
"""The folder of each run's mirror."""

_WAITS = ("--mirror-wait", "1")


class _Mirrors(Kind):
    """Two models and two runs, each run with its mirror."""

    _run = HALF

    def make(self, work: Path) -> None:
        for seed, name in enumerate(("base", "other")):
            tiny_files.write(work / name, tiny_files.model_files(seed))
        (work / "recipe.yaml").write_text(RECIPE)
        make_unfinished("recipe.yaml", MIRRORS[HALF])
        make_finished("recipe.yaml", "--mirror", MIRRORS[DONE])

    def commands(self, draw: Random) -> Commands:
        mirror = str(Path(MIRRORS[self._run]).absolute())
        elsewhere = draw.random() < 0.6
        for folder in ("state", HALF, DONE) if elsewhere else ():
            shutil.rmtree(folder)
        over = ["--take-over"] * (draw.random() < 0.3)
        back = ["--bring-back"] * (draw.random() < 0.3)
        waits = [*_WAITS, *over, *back]
        status, verify = ["status", mirror], ["verify", mirror]
        resume = ["resume", mirror, *MERGE, *waits]
        out = draw.choice((self._run, self._run, "out"))
        run = ["run", "recipe.yaml", out, *MERGE, *waits, "--mirror", mirror]
        run += ["--restart"] * (draw.random() < 0.2)
        again = [["resume", self._run, *MERGE, *_WAITS]] * (not elsewhere)
        return draw.choice(([status], [verify], [resume], [resume, status], [run], [run, *again]))


class Snapshots(_Mirrors):
    """Snapshots of the ledger, under a name with the right or a wrong checksum."""

    def change(self, draw: Random, work: Path) -> Path:
        folder = work / MIRRORS[HALF]
        found = snapshot_names(f"{METADATA}/{path.name}" for path in (folder / METADATA).iterdir())
        newest = found[0]
        path = folder / newest.name
        change_database(draw, path)
        if path.is_symlink() or not path.is_file() or draw.random() < 0.05:
            return path
        checksum = xxhash.xxh3_128_hexdigest(path.read_bytes())
        number = draw.choice((newest.number, newest.number + 1, 10**12))
        return path.rename(folder / SnapshotName(newest.token, number, checksum).name)


class Manifests(_Mirrors):
    """The manifest, with a right or a wrong checksum, and leases."""

    def change(self, draw: Random, work: Path) -> Path:
        if draw.random() < 0.5:
            self._run = DONE
            path = work / MIRRORS[DONE] / MANIFEST_FILE
            put_something(draw, path, lambda: _changed_manifest(draw, path.read_bytes()))
            return path
        self._run = HALF
        (path,) = (work / MIRRORS[HALF] / METADATA).glob("lease-*.json")
        data = path.read_bytes()
        if draw.random() < 0.5:
            path = path.parent.parent / lease_name(draw.choice((2, 10, 999_999_999)))
        put_something(draw, path, lambda: _changed_lease(draw, data))
        return path


def _changed_lease(draw: Random, data: bytes) -> bytes:
    content = json.loads(data)
    content["released"] = draw.random() < 0.5
    content["host"] = draw.choice((content["host"], "elsewhere"))
    return changed_json(draw, content) if draw.random() < 0.9 else changed_bytes(draw, data)


def _changed_manifest(draw: Random, data: bytes) -> bytes:
    if draw.random() < 0.1:
        return changed_bytes(draw, data)
    content = json.loads(data)
    del content["checksum"]
    content = changed(draw, content)
    if not isinstance(content, dict) or draw.random() < 0.2:
        return changed_json(draw, content)
    text = json.dumps(content, sort_keys=True)
    content["checksum"] = xxhash.xxh3_128_hexdigest(text.encode())
    return json.dumps(content).encode()
