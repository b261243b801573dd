"""Mirrors as somebody else might have left them: with any ledger that a test wants."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import xxhash
from merging import working_in

from resumerge.engine.lifecycle.session import Session
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options

RECIPE = "merge_method: passthrough\nmodels: [{model: math}]\n"
Edit = Callable[[sqlite3.Connection], Any]


def put(made: Path, mirror: Path, *edits: str | Edit, number: int = 1) -> Path:
    """Put a snapshot into a mirror, after an edit of its database."""
    (run,) = RunStore(made / "merged.state").runs()
    path = mirror.parent / "strange.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(run / "ledger.db")) as db:
        db.execute("VACUUM INTO ?", [str(path)])
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE run SET state = 'running', mirror = 'elsewhere'")
        db.execute("DELETE FROM companions")
        for name, nbytes in db.execute("SELECT name, nbytes FROM shards").fetchall():
            sha256 = hashlib.sha256((mirror / name).read_bytes()).hexdigest()
            at = "2026-01-01T00:00:00+00:00"
            db.execute("INSERT INTO mirrored VALUES (?, ?, ?, ?)", [name, nbytes, sha256, at])
        for edit in edits:
            db.executescript(edit) if isinstance(edit, str) else edit(db)
        db.commit()
    return put_bytes(mirror, path.read_bytes(), number)


def put_bytes(mirror: Path, data: bytes, number: int = 1) -> Path:
    name = f"ledger-000001-{number:06}-{xxhash.xxh3_128_hexdigest(data)}.db"
    (mirror / ".resumerge" / name).write_bytes(data)
    return mirror / ".resumerge" / name


def resume(made: Path, mirror: Path, **options: Any) -> Path:
    """Resume from a mirror in a working folder with links to the models, and return the folder."""
    work = mirror.parent / "work"
    work.mkdir(exist_ok=True)
    for model in (made / "models").iterdir():
        if not (work / model.name).exists():
            (work / model.name).symlink_to(model)
    with working_in(work):
        Session(Options(state_dir=mirror.parent / "state", **options)).resume(str(mirror))
    return work


def edited_manifest(manifest: bytes, **facts: str) -> bytes:
    """Return a manifest with other facts and a valid checksum."""
    content = {**json.loads(manifest), **facts}
    content.pop("checksum")
    checksum = xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())
    return json.dumps({**content, "checksum": checksum}).encode()
