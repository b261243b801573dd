"""The Python twins of the commands.

Example:
    >>> import resumerge
    >>> resumerge.run("configs/ties.yaml", "merged", memory="2GB")
    >>> resumerge.status("merged")["runs"][0]["state"]
    'done'
"""

from __future__ import annotations

import warnings
from pathlib import Path

from resumerge.engine.checks.preflight import OUTPUT, STATE
from resumerge.engine.execute.reporter import Reporter
from resumerge.engine.recovery.verify import verify_mirror, verify_run
from resumerge.engine.reports.cache_check import CacheReport, check_cache, repair_cache
from resumerge.engine.reports.plan_report import describe_plan
from resumerge.errors import refuse
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.stores.registry import has_scheme, is_mirror_url
from resumerge.options import MEMORY_WAIT, Options, as_path
from resumerge.report.sizes import parse_size
from resumerge.report.status import Status, status_json
from resumerge.storage import Storage
from resumerge.ui.notebook.merging_here import merge_here, told_here
from resumerge.ui.notebook.shown_results import ShownResult, ShownVerification
from resumerge.ui.terminal.plan import PLANNING, PlanDocument

# tqdm, which comes with huggingface_hub, asks every notebook for widgets that nothing here shows.
warnings.filterwarnings("ignore", message="IProgress not found")

StrPath = str | Path
RECIPE, MIRROR = "recipe", "mirror"


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
    memory_wait: float = MEMORY_WAIT,
    evict: bool = False,
    mirror: StrPath | None = None,
    mirror_then_delete: bool | None = None,
    mirror_rate: int | str | None = None,
    mirror_wait: float | None = None,
    take_over: bool = False,
    bring_back: bool = False,
    reporter: Reporter | None = None,
    progress: str = "auto",
) -> ShownResult:
    """Merge in this process; if `out` has an unfinished run of the same recipe, go on with it.

    There is no supervisor: if this process is killed, `resume` goes on, but nobody calls it.

    Args:
        memory, shard_size: bytes, or a size like ``"2GB"``.
        memory_wait: seconds to wait where there is no memory, before `Resumable` is raised.
        evict: delete downloads of this run as soon as nothing needs them.
        mirror: a folder or ``hf://org/name`` that the run is copied to as it goes. Where it holds
            an unfinished run of this recipe, that one goes on.
        mirror_then_delete: delete a shard here once the mirror has it.
        mirror_rate: bytes in a second that the mirror may take, or a size.
        mirror_wait: seconds to wait for a mirror that fails, before `Resumable` is raised.
        take_over: the machine that holds the mirror is known to be dead.
        bring_back: shards that are only in the mirror shall be in `out` too.
        reporter: told about progress, in place of what `progress` names.
        progress: ``auto`` is a live picture in a notebook, and nothing elsewhere; ``bar``,
            ``lines`` and ``json`` print as the command does; ``none``.

    Raises:
        InputError: recipe, sources or output are unfit; nothing was written.
        Resumable: stopped short; `resume` goes on.
        Interrupted: SIGINT or SIGTERM; what was done is committed.

        The last two are in `resumerge.errors`, and say what to type to go on. Whoever does not
        catch them ends with a traceback and exit code 1; their `exit_code` is the command's.
    """
    options = Options(
        _path(state_dir),
        _size(memory),
        threads,
        device,
        _size(shard_size),
        seed,
        offline,
        restart,
        memory_wait,
        evict,
        _address(mirror, MIRROR),
        mirror_then_delete,
        _size(mirror_rate),
        mirror_wait,
        take_over,
        bring_back,
    )
    recipe, folder = as_path(config, RECIPE), as_path(out, OUTPUT)
    return merge_here(options, lambda s: s.run(recipe, folder), reporter, progress)


def resume(
    run: StrPath | None = None,
    *,
    state_dir: StrPath | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    offline: bool = False,
    restart: bool = False,
    memory_wait: float = MEMORY_WAIT,
    evict: bool = False,
    mirror: StrPath | None = None,
    mirror_then_delete: bool | None = None,
    mirror_rate: int | str | None = None,
    mirror_wait: float | None = None,
    take_over: bool = False,
    bring_back: bool = False,
    output: StrPath | None = None,
    reporter: Reporter | None = None,
    progress: str = "auto",
) -> ShownResult:
    """Go on with a run, named by its id, output folder or mirror; by default the newest.

    Args:
        output: for a run that comes from a mirror; by default its name, in the working folder.
        progress: as `run`.

    Raises:
        InputError, Resumable, Interrupted: as `run`.
    """
    options = Options(
        _path(state_dir),
        _size(memory),
        threads,
        device,
        None,
        None,
        offline,
        restart,
        memory_wait,
        evict,
        _address(mirror, MIRROR),
        mirror_then_delete,
        _size(mirror_rate),
        mirror_wait,
        take_over,
        bring_back,
        _path(output, OUTPUT),
    )
    name = _name(run)
    return merge_here(options, lambda s: s.resume(name), reporter, progress)


def status(run: StrPath | None = None, *, state_dir: StrPath | None = None) -> Status:
    """The document of ``resumerge status --json``: the run that is named, or all, newest first.

    Raises:
        InputError: there is no such run.
    """
    return status_json(RunStore(_path(state_dir)), _name(run))


def plan(
    config: StrPath,
    out: StrPath | None = None,
    *,
    state_dir: StrPath | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    shard_size: int | str | None = None,
    seed: int | None = None,
    offline: bool = False,
    evict: bool = False,
    mirror: StrPath | None = None,
    progress: str = "auto",
) -> PlanDocument:
    """The document of ``resumerge plan --json``; problems of the recipe are listed in it.

    Args:
        mirror: as `run`; nothing is asked of it, nor written there.
        progress: ``auto`` tells in a notebook every few seconds that it still goes on, and is
            silent elsewhere; ``bar`` and ``lines`` tell; ``json`` and ``none`` do not.

    Raises:
        InputError: an argument is not of its type, or out of range.
    """
    options = Options(
        _path(state_dir),
        _size(memory),
        threads,
        device,
        _size(shard_size),
        seed,
        offline,
        evict=evict,
        mirror=_address(mirror, MIRROR),
    )
    recipe, folder = as_path(config, RECIPE), _path(out, OUTPUT)
    with told_here(PLANNING, progress):
        return PlanDocument(describe_plan(recipe, folder, options, progress))


def verify(run: StrPath | None = None, *, state_dir: StrPath | None = None) -> ShownVerification:
    """Read an output again, or what is in a mirror, and compare it with the ledger's checksums.

    Raises:
        InputError: there is no such run.
        Resumable: the mirror, or the output, cannot be read now.
    """
    name = _name(run)
    if name is not None and is_mirror_url(name):
        return ShownVerification.of(verify_mirror(name, RunStore(_path(state_dir)), Storage()))
    return ShownVerification.of(verify_run(RunStore(_path(state_dir)).find(name), Storage()))


def cache_check(
    target: StrPath, *, state_dir: StrPath | None = None, offline: bool = False
) -> CacheReport:
    """Read the cached files of a recipe, or of ``org/name``, and compare them with their hashes.

    Raises:
        InputError: no such recipe; or nothing of the repo is in the cache.
    """
    return check_cache(str(target), Options(_path(state_dir), offline=offline))


def cache_repair(target: StrPath, *, state_dir: StrPath | None = None) -> CacheReport:
    """Check, and fetch the files that are damaged or missing, and no others.

    Raises:
        InputError, Resumable: as `run`.
    """
    return repair_cache(str(target), Options(_path(state_dir)))


def _path(path: StrPath | None, what: str = STATE) -> Path | None:
    return None if path is None else as_path(path, what)


def _name(run: StrPath | None) -> str | None:
    return _address(run, "name of the run")


def _address(named: StrPath | None, what: str) -> str | None:
    """A folder, a run's id, or ``hf://org/name``, which a path would make ``hf:/org/name``."""
    if named is None:
        return None
    path = as_path(named, what)
    return named if isinstance(named, str) and has_scheme(named) else str(path)


def _size(size: int | str | None) -> int | None:
    if not isinstance(size, str):
        return size
    try:
        return parse_size(size)
    except ValueError as error:
        raise refuse(str(error), expected="bytes, or a size like 5GB", found=repr(size)) from None
