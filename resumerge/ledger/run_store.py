"""The state folder: one folder for each run, ``state/<run-id>/ledger.db``."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from resumerge.errors import refuse
from resumerge.ledger.ledger import LEDGER_FILE, read_run
from resumerge.ledger.snapshot import SNAPSHOT_FILE
from resumerge.local_path import local_path
from resumerge.storage import Storage

RECIPE_FILE = "recipe.yaml"
IN_BUCKETS = "in-buckets"
"""The subfolder of the state folder for the working folders of runs with a bucket as output."""

STAGED = ".new"
"""The suffix of a run's folder while its plan is being stored, and while it is being removed."""


class RunStore:
    """The runs in one state folder.

    Args:
        folder: the state folder; by default ``RESUMERGE_STATE_DIR``, or ``./state`` if the variable
            is not set.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        default = os.environ.get("RESUMERGE_STATE_DIR") or "state"
        self.folder = Path(folder or local_path(default, "state folder")).absolute()

    def runs(self) -> list[Path]:
        """Return the folders of all runs, oldest first."""
        try:
            folder_entries = list(self.folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise refuse(
                "The state folder cannot be read",
                where=self.folder,
                expected="a folder with ledgers, or a folder that does not exist yet",
                found=error.strerror or str(error),
                fix="name another folder with --state-dir, or with RESUMERGE_STATE_DIR",
            ) from None
        run_folders = [
            path
            for path in folder_entries
            if path.suffix != STAGED and any((path / f).exists() for f in _LEDGERS)
        ]
        return sorted(run_folders, key=lambda path: (_created(path), path.name))

    def find(self, wanted: str | None) -> Path:
        """Return the folder of a run.

        Args:
            wanted: the run's id or output; None for the newest run.

        Raises:
            InputError: no run matches, or the state folder cannot be read.
        """
        runs = self.runs()
        if wanted is None and runs:
            return runs[-1]
        if wanted is not None:
            runs_with_id = [path for path in runs if path.name == wanted]
            runs_with_output = self.of_output(Path(wanted))
            if runs_with_id or runs_with_output:
                return runs_with_id[0] if runs_with_id else runs_with_output[-1]
        damaged_runs = [path for path in runs if not output_of(path)]
        raise refuse(
            f"There is no run {wanted!r}" if wanted else "There is no run yet",
            where=str(self.folder),
            expected="a run id, or the output of a run",
            found=", ".join(
                path.name + " (ledger and snapshot damaged)" * (path in damaged_runs)
                for path in runs[-5:]
            )
            or "no runs in this state folder",
            fix="name another run, or the state folder of this one with --state-dir"
            + "".join(
                "; or start the damaged run over in a new or empty folder: `resumerge run "
                f"{path / RECIPE_FILE} OUT`"
                for path in damaged_runs[-1:]
            ),
        )

    def output_in(self, url: str) -> Path:
        """Return the working folder of the run whose output is a place in a bucket.

        Args:
            url: the normalised address of that place.
        """
        return self.folder / IN_BUCKETS / _digest(url) / url.rpartition("/")[2]

    def remove_unused(self, output: Path) -> None:
        """Remove the working folder of a run whose output is in a bucket, if it is empty."""
        if output.is_relative_to(self.folder / IN_BUCKETS):
            with suppress(OSError):
                for folder in (output, *output.parents[:2]):
                    folder.rmdir()

    def of_address(self, url: str) -> list[Path]:
        """Return the runs whose output is at this address in a bucket, oldest first."""
        return self.of_output(self.output_in(url))

    def of_output(self, output: Path) -> list[Path]:
        """Return the runs that write to an output, oldest first."""
        wanted_output = str(output.absolute())
        real_output = os.path.realpath(output)
        return [
            path
            for path in self.runs()
            if (stored_output := output_of(path))
            and (
                stored_output in (wanted_output, real_output)
                or os.path.realpath(stored_output) == real_output
            )
        ]

    def stage(self, model: str, storage: Storage) -> Path:
        """Create a folder for a new run of a model. Readers ignore it: its suffix is `STAGED`."""
        storage.make_folder(self.folder)
        created = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        safe_name = re.sub(r"[^A-Za-z0-9_-]+", "-", model).strip("-")[:40] or "merge"
        staged_folder = self.folder / f"{safe_name}-{created}-{os.urandom(2).hex()}{STAGED}"
        staged_folder.mkdir()
        return staged_folder

    def staged(self) -> list[Path]:
        """Return the folders of runs that were not completely created or removed."""
        return list(self.folder.glob(f"*{STAGED}"))

    def publish(self, folder: Path, storage: Storage) -> Path:
        """Rename a staged folder to its final name, durably, and return the new path."""
        final_folder = folder.with_suffix("")
        storage.rename(folder, final_folder)
        return final_folder


def is_output_in(output: Path | str, url: str | None) -> bool:
    """Return whether a run's output is a place in a bucket, and not a folder on its machine.

    Args:
        output: the run's output as its ledger records it, on this machine or another one.
        url: the normalised address of the run's mirror, or None.
    """
    last_parts = Path(output).parts[-3:]
    return url is not None and last_parts[:2] == (IN_BUCKETS, _digest(url))


def named_output(output: Path | str, url: str | None) -> Path | str:
    """Return a run's output as the user named it: a path, or the address of a place in a bucket.

    Args:
        output: the run's output as its ledger records it, on this machine or another one.
        url: the normalised address of the run's mirror, or None.
    """
    return url if url is not None and is_output_in(output, url) else Path(output)


def output_as_named(output: Path | str, url: str | None) -> str:
    """Return the text of `named_output`."""
    return str(named_output(output, url))


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


_LEDGERS = (LEDGER_FILE, SNAPSHOT_FILE)


def _run_column(folder: Path, column: str) -> str:
    """Return a column of the run's row, from the ledger or its snapshot.

    Returns:
        the column as text; empty if both files are damaged or missing.
    """
    for name in _LEDGERS:
        with suppress(sqlite3.DatabaseError):
            if (folder / name).exists():
                return str(read_run(folder / name, column))
    return ""


def state_of(folder: Path) -> str:
    """Return the state of the run in this folder; empty if ledger and snapshot are damaged."""
    return _run_column(folder, "state")


def _created(folder: Path) -> str:
    return _run_column(folder, "created")


def output_of(folder: Path) -> str:
    """Return the output of the run in this folder; empty if ledger and snapshot are damaged."""
    return _run_column(folder, "output")
