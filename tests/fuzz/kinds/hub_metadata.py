"""The metadata cache of Hub files, remote.db, and the refs in the Hub's own cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from random import Random

from fuzz import tiny_files
from fuzz.changes.databases import change_database
from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.kinds.base import MERGE, Commands, Kind, continues, merges
from fuzz.runs import HALF, make_unfinished
from resumerge.remote.metadata_cache import DATABASE, MetadataCache

_COMMIT = "0123456789abcdef" * 2 + "01234567"
_NAMES = ("base", "other")
_RECIPE = (
    "merge_method: linear\nparameters: {weight: 1}\ntokenizer_source: base\n"
    "models: [{model: org/base}, {model: org/other}]\n"
)


class HubMetadata(Kind):
    """Two models in the Hub's cache, a run that used them, and their cached metadata."""

    def make(self, work: Path) -> None:
        cache = MetadataCache(work / "state")
        for seed, name in enumerate(_NAMES):
            listed = _write_repo(_repo(name), tiny_files.model_files(seed))
            cache.store_listing(f"org/{name}", _COMMIT, listed)
        cache.close()
        (work / "recipe.yaml").write_text(_RECIPE)
        make_unfinished("recipe.yaml")

    def change(self, draw: Random, work: Path) -> Path:
        if draw.random() < 0.15:
            path = _repo(draw.choice(_NAMES)) / "refs" / "main"
            put_something(draw, path, lambda: changed_bytes(draw, path.read_bytes()))
            return path
        path = work / "state" / DATABASE
        change_database(draw, path)
        return path

    def commands(self, draw: Random) -> Commands:
        match draw.randrange(6):
            case 0:
                target = draw.choice(("recipe.yaml", "org/base", "org/other@main"))
                return [["cache", "check", target, "--offline"]]
            case 1:
                return continues(draw, HALF)
            case 2:
                return [["run", "recipe.yaml", HALF, *MERGE, "--evict"]]
        return merges(draw, "recipe.yaml")


def _repo(name: str) -> Path:
    return Path(os.environ["HF_HOME"]) / "hub" / f"models--org--{name}"


def _write_repo(repo: Path, files: dict[str, bytes]) -> dict[str, tuple[int, str]]:
    """Put files into the cache as a download does, and return their sizes and hashes."""
    for folder in ("blobs", "refs", f"snapshots/{_COMMIT}"):
        (repo / folder).mkdir(parents=True)
    (repo / "refs" / "main").write_text(_COMMIT)
    listed = {}
    for name, data in files.items():
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        etag = hashlib.sha256(data).hexdigest() if name.endswith(".safetensors") else git
        (repo / "blobs" / etag).write_bytes(data)
        (repo / "snapshots" / _COMMIT / name).symlink_to(f"../../blobs/{etag}")
        listed[name] = len(data), etag
    return listed
