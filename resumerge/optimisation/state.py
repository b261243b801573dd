"""The searches of a state folder: how far each is, and the command that resumes it.

A list is read from the tables of Optuna's storage, without Optuna, whose import takes a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from resumerge.engine.resources.lock import lock_holder
from resumerge.errors import Reason, Resumable
from resumerge.ledger.run_store import RunStore, output_of

FOLDER = "searches"
"""The folder in the state folder with a folder for each search."""

STUDY_FILE = "study.db"
SETTINGS, ASKED = "settings", "asked"
"""The attributes of the study: what decides what is suggested, and what was asked for last."""

TRIALS = "trials"
"""The folder in the output with a folder for each trial."""

MAXIMIZE, MINIMIZE = "maximize", "minimize"
DIRECTIONS = (MAXIMIZE, MINIMIZE)

_COUNTS = "SELECT state, count(*) FROM trials GROUP BY state"
_BEST = """SELECT number, value FROM trials JOIN trial_values USING (trial_id)
    WHERE state = 'COMPLETE' AND objective = 0 ORDER BY value {order}, number LIMIT 1"""


def folder_of(out: Path, state: Path) -> Path:
    """Return the folder of the search with an output, an absolute path, in a state folder."""
    name = hashlib.sha256(os.fsencode(out)).hexdigest()[:16]
    return state / FOLDER / f"{out.name}-{name}"


def searches(store: RunStore) -> list[Path]:
    """Return the folders of all searches in a state folder, oldest first."""
    found = [path.parent for path in (store.folder / FOLDER).glob(f"*/{STUDY_FILE}")]
    return sorted(found, key=lambda folder: (describe_search(folder)["created"], folder.name))


def find_search(store: RunStore, wanted: str | None) -> Path | None:
    """Return the folder of a search, by its id or its output; None if there is no such search.

    Args:
        store: the folder of all runs.
        wanted: the id or output; None for the search that the newest run is a trial of.
    """
    if wanted is None:
        newest = [Path(output_of(folder)) for folder in store.runs()[-1:]]
        outputs = [model.parents[2] for model in newest if model.parts[-3:-2] == (TRIALS,)]
    else:
        outputs = [Path(os.path.realpath(wanted))]
    folders = [folder_of(out, store.folder) for out in outputs]
    if wanted and Path(wanted).name == wanted:
        folders.append(store.folder / FOLDER / wanted)
    return next((folder for folder in folders if (folder / STUDY_FILE).is_file()), None)


def describe_search(folder: Path) -> dict[str, Any]:
    """Return one of the searches of ``resumerge status --json``.

    Args:
        folder: the search's, in the state folder.

    Raises:
        Resumable: its study cannot be read.
    """
    attributes = attributes_of(folder)
    settings = attributes[SETTINGS]
    with _study(folder) as study:
        counts = dict(study.execute(_COUNTS).fetchall())
        order = "DESC" if settings["directions"][0] == MAXIMIZE else "ASC"
        best = study.execute(_BEST.format(order=order)).fetchone()
    asked, one = attributes[ASKED], len(settings["directions"]) == 1
    complete, failed = counts.get("COMPLETE", 0), counts.get("FAIL", 0)
    is_done = complete + failed >= asked["trials"]
    is_running = lock_holder(folder) is not None
    names = settings["metrics"] or [""]
    return {
        "id": folder.name,
        "state": "running" if is_running else "done" if is_done else "interrupted",
        "output": asked["output"],
        "space": asked["space"],
        "study": str(folder / STUDY_FILE),
        "created": asked["created"],
        "counts": {"total": asked["trials"], "complete": complete, "failed": failed},
        "objectives": [
            {"metric": name, "direction": way} for name, way in zip(names, settings["directions"])
        ],
        "best_trial": best[0] if best and one else None,
        "best_value": best[1] if best and one else None,
        "command": asked["command"],
    }


def attributes_of(folder: Path) -> dict[str, Any]:
    """Return what a study keeps of its search: `SETTINGS` and `ASKED`.

    Raises:
        Resumable: the study cannot be read.
    """
    with _study(folder) as study:
        rows = study.execute("SELECT key, value_json FROM study_user_attributes")
        attributes = {key: json.loads(text) for key, text in rows}
        return {key: attributes[key] for key in (SETTINGS, ASKED)}


@contextmanager
def _study(folder: Path) -> Iterator[sqlite3.Connection]:
    path = folder / STUDY_FILE
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as study:
            yield study
    except (sqlite3.Error, ValueError, KeyError) as error:
        raise Resumable(
            Reason.IO, f"The study of a search, {path}, cannot be read: {error}"
        ) from None
