"""Upload a finished model to a repo of the Hub; files that the repo has are not sent again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from resumerge.engine.recovery.verify import verify_run
from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.errors import refuse
from resumerge.ledger import LEDGER_FILE, read_run
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.base import METADATA, Moved, Store
from resumerge.mirror.stores.hub_repo import Commits
from resumerge.mirror.stores.registry import has_scheme, open_store
from resumerge.output_path import OutputPath
from resumerge.recipe.references import HUB
from resumerge.sources.index import INDEX_SUFFIX, MODEL, read_index
from resumerge.storage import Storage

WEIGHTS = (".safetensors", ".bin")

_LOADED = frozenset(MODEL.weights)
"""The names of the files that transformers looks for to load a model."""

Begins = Callable[[str, int, int], object]
"""A function that is called with the name of the next file, its bytes, and the bytes of all."""


@dataclass(frozen=True)
class Pushed:
    """The result of an upload.

    Args:
        url: the repo's address.
        files: names of the model's files.
        nbytes: bytes of these files.
        sent: bytes that were sent, because the repo lacked them.
    """

    url: str
    files: list[str]
    nbytes: int
    sent: int

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``push --json``."""
        return {"repo": self.url, "files": self.files, "bytes": self.nbytes, "sent": self.sent}


def commits_of(private: bool, branch: str | None, message: str | None) -> Commits | None:
    """Return the form of commits that these options ask for; None for the default."""
    asked = Commits(private=private, branch=branch or Commits.branch, message=message or "")
    return None if asked == Commits() else asked


def push(
    out: Path,
    repo: str,
    runs: RunStore,
    begins: Begins,
    moved: Moved,
    commits: Commits | None = None,
) -> Pushed:
    """Upload every file of a model, in one commit at the end.

    A repo that does not exist is created, private unless `commits` says otherwise. If this machine
    knows the run that made the model, the weights are compared with its checksums first.

    Args:
        out: the folder of the model, or its only file.
        repo: ``org/name``, or the address of any store.
        runs: the folder of all runs.
        begins: called with the name of the next file, its bytes, and the bytes of all files.
        moved: called with bytes that were sent; may raise, to stop.
        commits: the branch of the repo, the message, and whether a new repo is private; None for
            the defaults, and for a store that is no repo.

    Raises:
        InputError: this is no finished model, it is damaged, or the repo has other contents;
            nothing was sent.
        Resumable: the repo cannot be reached. Files that were sent are not sent again.
    """
    output = OutputPath(out)
    folder, files = output.folder, [out.name] if output.is_file else _files(out)
    if output.is_file:
        _check_file(out)
    repo = repo.removeprefix(HUB)
    store = _store(repo if has_scheme(repo) else f"hf://{repo}", commits)
    _check(out, runs)
    _check_repo(store, files)
    sizes = {name: (folder / name).stat().st_size for name in files}
    sent = 0

    def count(nbytes: int) -> None:
        nonlocal sent
        sent += nbytes
        moved(nbytes)

    for name in files:
        begins(name, sizes[name], sum(sizes.values()))
        retry_store(store, partial(store.upload, name, folder / name, count), "repo")
    retry_store(store, lambda: store.put({}), "repo")
    return Pushed(store.url, files, sum(sizes.values()), sent)


def _store(url: str, commits: Commits | None) -> Store:
    if commits is None:
        return open_store(url)
    from resumerge.mirror.stores.hub import HubStore

    if not HubStore.recognises(url):
        raise refuse(
            "Only a repo of the Hub has branches and commit messages, and is private or public",
            where=url,
            expected="org/name",
            found="--branch, --message or --public",
            fix="leave them out",
        )
    return HubStore(url, commits=commits)


def _check_file(out: Path) -> None:
    """Check that a model of one file is there, and finished."""
    if not out.is_file():
        unfinished = out.with_name(out.name + PARTIAL).exists()
        raise refuse(
            "The model is not finished" if unfinished else "There is no model to upload",
            where=out,
            expected="a weight file, as `resumerge run` writes it",
            found=f"an unfinished file: {out.name}{PARTIAL}" if unfinished else "no file",
            fix="resume its run" if unfinished else "name the output of a run that is done",
        )


def _files(out: Path) -> list[str]:
    """Return the names of a model's files, smallest first; hidden files are no part of it."""
    names = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    visible = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    if unfinished := [name for name in visible if name.suffix == PARTIAL]:
        raise refuse(
            "The model is not finished",
            where=out,
            found=f"unfinished files: {', '.join(map(str, sorted(unfinished)[:3]))}",
            fix="resume its run, or remove these files",
        )
    if not any(name.suffix in WEIGHTS for name in visible):
        raise refuse(
            "There is no model to upload",
            where=out,
            expected="a folder with weights, as `resumerge run` writes it",
            found="no weights" if out.is_dir() else "no folder",
            fix="name the output of a run that is done",
        )
    if absent := _indexed(out) - set(map(str, visible)):
        raise refuse(
            "The model is incomplete",
            where=out,
            found=f"missing: {', '.join(sorted(absent)[:3])}",
            fix="copy or download the missing files, or name the output folder of a run",
        )
    return sorted(map(str, visible), key=lambda name: ((out / name).stat().st_size, name))


def _indexed(out: Path) -> set[str]:
    """Return the files that the model's indexes name; each component of a pipeline has an index."""
    indexes = out.rglob(f"*.safetensors{INDEX_SUFFIX}")
    return {
        str(index.with_name(file).relative_to(out))
        for index in indexes
        for file in read_index(index).values()
    }


def _check(out: Path, runs: RunStore) -> None:
    """Compare the model with the ledger of its newest run, if there is one."""
    made_by = runs.of_output(out)
    if not made_by:
        return
    run = made_by[-1]
    mend = f"`resumerge resume {run.name}`"
    state = read_run(run / LEDGER_FILE, "state")
    if state != "done":
        raise refuse("The model is not finished", where=out, found=f"its run is {state}", fix=mend)
    verification = verify_run(run, Storage())
    if not verification.intact:
        raise refuse(
            "The model is damaged",
            where=out,
            found=", ".join(
                f"{name}: {what}" for name, what in list(verification.damaged.items())[:5]
            ),
            fix=f"compute the damaged tensors again with {mend}",
        )


def _check_repo(store: Store, files: Sequence[str]) -> None:
    """Refuse a repo with the weights of another model, or with the mirror of a run.

    transformers might load the other weights instead of the model's, and other machines may resume
    the run from its mirror.
    """
    listed = retry_store(store, store.list, "repo")
    if any(name.startswith(f"{METADATA}/") for name in listed):
        raise refuse(
            "The repo is the mirror of a run",
            where=store.url,
            found=f"files in {METADATA}/",
            fix=f"look at it with `resumerge status {store.url}`, or name another repo",
        )
    if others := sorted((_LOADED & listed.keys()) - set(files)):
        raise refuse(
            "The repo contains another model",
            where=store.url,
            expected="no weights other than those of this model",
            found=", ".join(others),
            fix="name another repo, or delete these files there",
        )
