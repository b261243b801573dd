"""A model that is finished already: here, in its mirror, or partly in each."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from resumerge.engine.execute.reporter import Reporter, Result
from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.engine.lifecycle.import_run import bring_model
from resumerge.engine.mirrored.mirror_session import SHOWN, MirrorSession, check_apart
from resumerge.engine.resources.lock import folder_lock
from resumerge.errors import InputError, Resumable
from resumerge.ledger import Ledger
from resumerge.mirror.lease import retry
from resumerge.mirror.manifest import (
    MANIFEST_FILE,
    Manifest,
    missing_files,
    read_manifest,
    remove_metadata,
)
from resumerge.options import Options
from resumerge.planning import Plan
from resumerge.storage import Storage


def is_whole(plan: Plan, ledger: Ledger, files: ShardFiles, far: MirrorSession | None) -> bool:
    """Whether a finished run's files are all still there: shards with their size and header, here
    or in its mirror; and in the mirror everything that belongs there, by its size.

    The files beside the shards only have to exist: the user may have edited them since.

    Raises:
        InputError, Resumable: the mirror cannot be looked at.
    """
    lacking = [s for s in plan.shards if not files.is_intact(s, files.final(s))]
    if ledger.open_shards() or not all((files.folder / n).is_file() for n in ledger.companions()):
        return False
    if far is None:
        return not lacking
    noted = ledger.mirrored()
    return all(s.name in noted for s in lacking) and _is_whole_there(plan, ledger, far)


def _is_whole_there(plan: Plan, ledger: Ledger, far: MirrorSession) -> bool:
    """Whether the mirror says that it has the model, and has it; what is lacking is told."""
    far.check_mounted()
    done, there = retry(far.store, lambda: read_manifest(far.store)), far.files()
    lacking = {s.name for s in plan.shards if there.get(s.name) != s.nbytes}
    if done is None or done.run != (ledger.run() or {})["id"]:
        lacking.add(MANIFEST_FILE)
    else:
        lacking.update(missing_files(done, there))
    if lacking:
        ledger.event("mirror_lacks", mirror=far.url, names=sorted(lacking)[:SHOWN])
        far.note(f"The mirror at {far.url} lacks {', '.join(sorted(lacking)[:SHOWN])}")
    return not lacking


def already_there(
    far: MirrorSession,
    done: Manifest,
    out: Path | None,
    options: Options,
    storage: Storage,
    reporter: Reporter,
) -> Result:
    """The mirror holds the model, finished; it comes here only if that is asked for.

    Args:
        out: its output folder here, if it has one.

    Raises:
        InputError, Resumable: it cannot be brought.
    """
    with suppress(InputError, Resumable):  # who finished it may have died over it
        retry(far.store, lambda: remove_metadata(far.store))
    if options.bring_back and out is not None:
        if problems := check_apart(out, far):
            raise InputError(problems)
        storage.make_folder(out)
        with folder_lock(out):
            bring_model(far, done, out, storage)
    there = Path(far.url)
    here = out if out is not None and out.is_dir() else there
    result = Result(done.run, here, there, already_done=True, mirror=far.url)
    reporter.done(result)
    return result


def bring_rest(far: MirrorSession, out: Path, storage: Storage) -> None:
    """Bring here what is lacking of a model that is finished in the mirror.

    Raises:
        InputError, Resumable: it cannot be brought.
    """
    done = retry(far.store, lambda: read_manifest(far.store))
    if done is not None:
        with folder_lock(out):
            bring_model(far, done, out, storage)
