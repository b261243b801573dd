"""The Python twins of the commands.

Example:
    >>> import resumerge
    >>> resumerge.run("configs/ties.yaml", "merged", memory="2GB")
    >>> resumerge.status("merged")["runs"][0]["state"]
    'done'
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resumerge.engine.options import Options
from resumerge.engine.planning import describe_plan
from resumerge.engine.report import Reporter, Result
from resumerge.engine.session import Session
from resumerge.engine.verify import Verification, verify_run
from resumerge.ledger.home import Home
from resumerge.storage import Storage
from resumerge.ui.sizes import parse_size

StrPath = str | Path


def run(
    config: StrPath,
    out: StrPath,
    *,
    state_dir: StrPath | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    shard_size: int | str | None = None,
    seed: int | None = None,
    offline: bool = False,
    restart: bool = False,
    reporter: Reporter | None = None,
) -> Result:
    """Merge; if `out` has an unfinished run of the same recipe, go on with it.

    Args:
        memory, shard_size: bytes, or a size like ``"2GB"``.
        reporter: told about progress.

    Raises:
        InputError: recipe, sources or output are unfit; nothing was written.
        Resumable: stopped short; `resume` goes on.
        Interrupted: SIGINT or SIGTERM; what was done is committed.
    """
    options = Options(
        _path(state_dir), _size(memory), threads, device, _size(shard_size), seed, offline, restart
    )
    return Session(options, reporter).run(Path(config), Path(out))


def resume(
    run: str | None = None,
    *,
    state_dir: StrPath | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    offline: bool = False,
    restart: bool = False,
    reporter: Reporter | None = None,
) -> Result:
    """Go on with a run, named by its id or output folder; by default the newest.

    Raises:
        InputError, Resumable, Interrupted: as `run`.
    """
    options = Options(
        _path(state_dir), _size(memory), threads, device, None, None, offline, restart
    )
    return Session(options, reporter).resume(run)


def status(run: str | None = None, *, state_dir: StrPath | None = None) -> dict[str, Any]:
    """The document of ``resumerge status --json``: the run that is named, or all, newest first.

    Raises:
        InputError: there is no such run.
    """
    from resumerge.ui.status import status_json

    return status_json(Home(_path(state_dir)), run)


def plan(
    config: StrPath,
    out: StrPath | None = None,
    *,
    memory: int | str | None = None,
    threads: int | None = None,
    shard_size: int | str | None = None,
    seed: int | None = None,
    offline: bool = False,
) -> dict[str, Any]:
    """The document of ``resumerge plan --json``; problems are listed in it, not raised."""
    options = Options(None, _size(memory), threads, "cpu", _size(shard_size), seed, offline)
    return describe_plan(Path(config), _path(out), options)


def verify(run: str | None = None, *, state_dir: StrPath | None = None) -> Verification:
    """Read an output again and compare it with the ledger's checksums.

    Raises:
        InputError: there is no such run.
    """
    return verify_run(Home(_path(state_dir)).find(run), Storage())


def _path(path: StrPath | None) -> Path | None:
    return None if path is None else Path(path)


def _size(size: int | str | None) -> int | None:
    return parse_size(size) if isinstance(size, str) else size
