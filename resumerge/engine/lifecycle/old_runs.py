"""Old runs: their disk space, and their removal. Finished models are never removed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.engine.lifecycle.abandon_output import abandon_output, remove_folder
from resumerge.engine.recovery.open_ledger import open_ledger, read_ledger
from resumerge.engine.recovery.ownership import written_files
from resumerge.engine.resources.lock import lock_holder, output_lock, run_lock
from resumerge.errors import InputError, refuse
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore, output_as_named
from resumerge.ledger.validity import InvalidLedger
from resumerge.mirror.stores.registry import is_mirror_url, normalise
from resumerge.output_path import OutputPath
from resumerge.storage import Storage

DAMAGED = "damaged"
CONFIG = "config.json"
"""The file that a run writes last."""


@dataclass(frozen=True)
class OldRun:
    """A run that may be removed.

    Args:
        folder: the folder of the run's ledger, named by the run's id.
        state: the state in the ledger; `DAMAGED` if neither ledger nor snapshot can be read.
        output: the output on this machine; None if the ledger cannot be read.
        seconds: seconds since the last write to its ledger.
        ledger_bytes: the size of all files in `folder`.
        unfinished: names of the files of an unfinished model in the output's folder. They are
            removed with the run.
        unfinished_bytes: the size of all files of `unfinished` together.
        mirror: the address of its mirror, which is left unchanged; None without a mirror.
    """

    folder: Path
    state: str
    output: Path | None
    seconds: float
    ledger_bytes: int
    unfinished: Collection[str]
    unfinished_bytes: int
    mirror: str | None

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def named(self) -> str | None:
        """The output as the user named it: a path or an address; None if it is not known."""
        return None if self.output is None else output_as_named(self.output, self.mirror)

    def as_json(self) -> dict[str, Any]:
        """Return the run as ``clean --json`` shows it."""
        return {
            "id": self.id,
            "state": self.state,
            "output": self.named,
            "seconds": round(self.seconds, 1),
            "ledger_bytes": self.ledger_bytes,
            "unfinished_files": sorted(self.unfinished),
            "unfinished_bytes": self.unfinished_bytes,
            "mirror": self.mirror,
        }


def old_runs(
    runs: RunStore, names: Sequence[str] = (), *, done: bool = False, older: float | None = None
) -> list[OldRun]:
    """Return the runs that match these arguments, oldest first; runs in progress are left out.

    Args:
        runs: the folder of all runs.
        names: ids or outputs of runs. If empty, all runs that are done match; with `older`, all
            runs do.
        done: whether only runs that are done match.
        older: the least seconds since the last write to the ledger of a matching run.

    Raises:
        InputError: there is no such run, or a process is working on a run of `names`.
    """
    folders = list(dict.fromkeys(_find(runs, name) for name in names))
    for folder in folders:
        if (lock_owner := lock_holder(folder)) is not None:
            raise refuse(
                "A process is working on this run, so it is not removed",
                where=folder.name,
                found=f"pid {lock_owner.get('pid', '?')} on {lock_owner.get('host', '?')}",
                fix="wait until it has ended, or stop it",
            )
    folders = folders or runs.runs()
    idle_runs = [_describe(folder) for folder in folders if lock_holder(folder) is None]
    only_done = done or not (names or older is not None)
    return [
        run
        for run in idle_runs
        if (run.state == "done" or not only_done) and (older is None or run.seconds >= older)
    ]


def _find(runs: RunStore, name: str) -> Path:
    """Return the folder of a run, by its id or its output; the output may be in a bucket."""
    runs_in_bucket = runs.of_address(normalise(name)) if is_mirror_url(name) else []
    return runs_in_bucket[-1] if runs_in_bucket else runs.find(name)


def remove_run(run: OldRun, storage: Storage) -> None:
    """Remove a run's ledger, and the files of its model if the model is unfinished.

    Files that the run did not write, or that were edited since, are kept.

    Raises:
        InputError: a process is working on the run or its output; or the run's state is no longer
            `run.state`, so the model may be finished by now.
    """
    if not run.folder.is_dir():  # another process removed it first
        return
    with run_lock(run.folder, run.id):
        if (present_state := _describe(run.folder).state) != run.state:
            raise refuse(
                "The state of the run changed before it was removed",
                where=run.folder,
                expected=run.state,
                found=present_state,
                fix="run `resumerge clean` again",
            )
        if run.state in ("done", DAMAGED) or run.output is None:
            remove_folder(run.folder, storage)
            return
        ledger, _ = open_ledger(run.folder, storage)
        out = OutputPath(run.output)
        with closing(ledger), output_lock(out) if out.folder.is_dir() else nullcontext():
            if _is_whole(ledger, out):
                remove_folder(run.folder, storage)
            else:
                abandon_output(ledger, run.folder, out.folder, storage)
        RunStore(run.folder.parent).remove_unused(out.path)


def _describe(folder: Path) -> OldRun:
    stat_by_name = {path.name: path.stat() for path in _files(folder)}
    ledger_bytes = sum(stat.st_size for stat in stat_by_name.values())
    write_times = (
        stat.st_mtime
        for name, stat in stat_by_name.items()
        if stat.st_size and not name.endswith("-shm")  # readers also write these
    )
    idle_seconds = time.time() - max(write_times, default=0.0)
    try:
        with closing(read_ledger(folder)) as ledger:
            run_record = ledger.run()
            state, out = run_record["state"], OutputPath(Path(run_record["output"]))
            is_finished = state == "done" or _is_whole(ledger, out)
            unfinished_names = set() if is_finished else written_files(ledger, out.folder)
    except (InputError, InvalidLedger):
        return OldRun(folder, DAMAGED, None, idle_seconds, ledger_bytes, (), 0, None)
    unfinished_bytes = sum((out.folder / name).stat().st_size for name in unfinished_names)
    return OldRun(
        folder,
        state,
        out.path,
        idle_seconds,
        ledger_bytes,
        unfinished_names,
        unfinished_bytes,
        run_record["mirror"],
    )


def _is_whole(ledger: Ledger, out: OutputPath) -> bool:
    """Return whether the output has a finished model although this run is not done.

    A run in another state folder may have finished the model; its shards have the same names.
    """
    shard_names = [str(row["name"]) for row in ledger.shards.all()]
    last_files = () if out.is_file else (CONFIG,)
    return bool(shard_names) and all(
        (out.folder / name).is_file() for name in (*shard_names, *last_files)
    )


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
