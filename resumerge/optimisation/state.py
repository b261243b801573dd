"""The searches of a state folder: their progress, and the commands that resume them."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from resumerge.engine.resources.lock import lock_holder
from resumerge.errors import Reason, Resumable
from resumerge.ledger.run_store import RunStore, output_of
from resumerge.optimisation.study_tables import StudyTables, open_tables

FOLDER = "searches"
"""The folder in the state folder with a folder for each search."""

STUDY_FILE = "study.db"
SETTINGS, ASKED, BATCH = "settings", "asked", "batch"
"""The attributes of the study: the settings that decide the suggestions; the latest request; and
the first number and the count of the latest batch of trials."""

TRIALS = "trials"
"""The folder in the output with a folder for each trial."""

MAXIMIZE, MINIMIZE = "maximize", "minimize"
DIRECTIONS = (MAXIMIZE, MINIMIZE)


def search_folder(out: Path, state: Path) -> Path:
    """Return the folder of the search with an output, an absolute path, in a state folder."""
    name = hashlib.sha256(os.fsencode(out)).hexdigest()[:16]
    return state / FOLDER / f"{out.name}-{name}"


def list_searches(store: RunStore) -> list[dict[str, Any]]:
    """Return all searches of ``resumerge status --json``, oldest first.

    A search with an unreadable study has only its name and the reason; such searches come first.
    """
    folders = [path.parent for path in (store.folder / FOLDER).glob(f"*/{STUDY_FILE}")]
    return sorted(map(_listed, folders), key=lambda each: (each["created"] or "", each["id"]))


def _listed(folder: Path) -> dict[str, Any]:
    try:
        return describe_search(folder)
    except Resumable as error:
        return {
            "id": folder.name,
            "state": "failed",
            "output": None,
            "space": None,
            "study": str(folder / STUDY_FILE),
            "created": None,
            "counts": {"total": 0, "complete": 0, "failed": 0},
            "batch": None,
            "jobs": None,
            "objectives": [],
            "best_trial": None,
            "best_value": None,
            "command": None,
            "problem": error.message,
        }


def find_search(store: RunStore, wanted: str | None) -> Path | None:
    """Return the folder of a search, by its id or its output; None if there is no such search.

    Args:
        store: the folder of all runs.
        wanted: the id or output; None for the search whose trial is the newest run.
    """
    if wanted is None:
        newest_outputs = [Path(output_of(folder)) for folder in store.runs()[-1:]]
        outputs = [model.parents[2] for model in newest_outputs if model.parts[-3:-2] == (TRIALS,)]
    else:
        outputs = [Path(os.path.realpath(wanted))]
    folders = [search_folder(output, store.folder) for output in outputs]
    if wanted and Path(wanted).name == wanted:
        folders.append(store.folder / FOLDER / wanted)
    return next((folder for folder in folders if (folder / STUDY_FILE).is_file()), None)


def describe_search(folder: Path) -> dict[str, Any]:
    """Return the entry of one search in ``resumerge status --json``.

    Args:
        folder: the folder of the search in the state folder.

    Raises:
        Resumable: its study cannot be read.
    """
    with _study(folder) as study:
        attributes, count_by_state = study.attributes(), study.counts()
        settings, request = attributes[SETTINGS], attributes[ASKED]
        directions = settings["directions"]
        number_and_value = (
            study.best(largest=directions[0] == MAXIMIZE) if len(directions) == 1 else None
        )
        complete_count = count_by_state.get("COMPLETE", 0)
        failed_count = count_by_state.get("FAIL", 0)
        is_done = complete_count + failed_count >= request["trials"]
        is_running = lock_holder(folder) is not None
        return {
            "id": folder.name,
            "state": "running" if is_running else "done" if is_done else "interrupted",
            "output": request["output"],
            "space": request["space"],
            "study": str(folder / STUDY_FILE),
            "created": request["created"],
            "counts": {
                "total": request["trials"],
                "complete": complete_count,
                "failed": failed_count,
            },
            "batch": settings["batch"],
            "jobs": request["jobs"],
            "objectives": [
                {"metric": name, "direction": direction}
                for name, direction in zip(settings["metrics"] or [""], directions)
            ],
            "best_trial": number_and_value[0] if number_and_value else None,
            "best_value": number_and_value[1] if number_and_value else None,
            "command": request["command"],
            "problem": None,
        }


def attributes_of(folder: Path) -> dict[str, Any]:
    """Return two attributes of a search's study, by name: `SETTINGS` and `ASKED`.

    Raises:
        Resumable: the study cannot be read.
    """
    with _study(folder) as study:
        attributes = study.attributes()
        return {key: attributes[key] for key in (SETTINGS, ASKED)}


@contextmanager
def _study(folder: Path) -> Iterator[StudyTables]:
    path = folder / STUDY_FILE
    try:
        with open_tables(path) as study:
            yield study
    except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise Resumable(
            Reason.IO, f"The study of a search, {path}, cannot be read: {reason}"
        ) from None
