"""Upload a finished model to the Hub or another store, without files that are already there."""

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
"""The file names that transformers looks for when it loads a model."""

Begins = Callable[[str, int, int], object]
"""A function that is called with the name of the next file, its bytes, and the bytes of all files.
"""


@dataclass(frozen=True)
class Pushed:
    """The result of an upload.

    Args:
        url: the normalised address of the repo, or of another store.
        files: the names of the model's files, in the order in which they were uploaded.
        nbytes: the bytes of all these files.
        sent: the bytes that were sent; the repo already had the rest.
    """

    url: str
    files: list[str]
    nbytes: int
    sent: int

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``push --json``."""
        return {"repo": self.url, "files": self.files, "bytes": self.nbytes, "sent": self.sent}


def commits_of(private: bool, branch: str | None, message: str | None) -> Commits | None:
    """Return the settings of commits from these options; None if all have their defaults."""
    settings = Commits(private=private, branch=branch or Commits.branch, message=message or "")
    return None if settings == Commits() else settings


def push(
    out: Path,
    repo: str,
    runs: RunStore,
    begins: Begins,
    moved: Moved,
    commits: Commits | None = None,
) -> Pushed:
    """Upload every file of a model; one commit at the end adds them to the repo.

    A missing repo is created. It is private unless `commits` makes it public. If this machine has
    the ledger of the model's run, the weights are first compared with its checksums.

    Args:
        out: the folder of the model, or its only file.
        repo: ``org/name`` on the Hub, or the address of any store.
        runs: the folder of all runs.
        begins: called before each file, with its name, its bytes, and the bytes of all files.
        moved: called with the number of bytes that were just sent; may raise, to stop.
        commits: the branch, the commit message, and whether a new repo is private; None for the
            defaults, and for a store that is not on the Hub.

    Raises:
        InputError: the model is unfinished, incomplete or damaged, or the repo has other contents;
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
    file_sizes = {name: (folder / name).stat().st_size for name in files}
    sent = 0

    def count(nbytes: int) -> None:
        nonlocal sent
        sent += nbytes
        moved(nbytes)

    for name in files:
        begins(name, file_sizes[name], sum(file_sizes.values()))
        retry_store(store, partial(store.upload, name, folder / name, count), "repo")
    retry_store(store, lambda: store.put({}), "repo")
    return Pushed(store.url, files, sum(file_sizes.values()), sent)


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
    """Check that a model of one file exists and is finished."""
    if not out.is_file():
        is_unfinished = out.with_name(out.name + PARTIAL).exists()
        raise refuse(
            "The model is not finished" if is_unfinished else "There is no model to upload",
            where=out,
            expected="a weight file, as `resumerge run` writes it",
            found=f"an unfinished file: {out.name}{PARTIAL}" if is_unfinished else "no file",
            fix="resume its run" if is_unfinished else "name the output of a run that is done",
        )


def _files(out: Path) -> list[str]:
    """Return the names of a model's files, smallest first, without hidden files."""
    relative_paths = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    visible_paths = [
        name for name in relative_paths if not any(part.startswith(".") for part in name.parts)
    ]
    if unfinished_paths := [name for name in visible_paths if name.suffix == PARTIAL]:
        raise refuse(
            "The model is not finished",
            where=out,
            found=f"unfinished files: {', '.join(map(str, sorted(unfinished_paths)[:3]))}",
            fix="resume its run, or remove these files",
        )
    if not any(name.suffix in WEIGHTS for name in visible_paths):
        raise refuse(
            "There is no model to upload",
            where=out,
            expected="a folder with weights, as `resumerge run` writes it",
            found="no weights" if out.is_dir() else "no folder",
            fix="name the output of a run that is done",
        )
    if missing_files := _indexed(out) - set(map(str, visible_paths)):
        raise refuse(
            "The model is incomplete",
            where=out,
            found=f"missing: {', '.join(sorted(missing_files)[:3])}",
            fix="copy or download the missing files, or name the output folder of a run",
        )
    return sorted(map(str, visible_paths), key=lambda name: ((out / name).stat().st_size, name))


def _indexed(out: Path) -> set[str]:
    """Return the files that are named in the model's indexes; a pipeline has one per component."""
    indexes = out.rglob(f"*.safetensors{INDEX_SUFFIX}")
    return {
        str(index.with_name(file).relative_to(out))
        for index in indexes
        for file in read_index(index).values()
    }


def _check(out: Path, runs: RunStore) -> None:
    """Compare the model with the ledger of its newest run, if this machine has one."""
    runs_of_model = runs.of_output(out)
    if not runs_of_model:
        return
    run_folder = runs_of_model[-1]
    resume_command = f"`resumerge resume {run_folder.name}`"
    state = read_run(run_folder / LEDGER_FILE, "state")
    if state != "done":
        raise refuse(
            "The model is not finished", where=out, found=f"its run is {state}", fix=resume_command
        )
    verification = verify_run(run_folder, Storage())
    if not verification.intact:
        raise refuse(
            "The model is damaged",
            where=out,
            found=", ".join(
                f"{name}: {damage}" for name, damage in list(verification.damaged.items())[:5]
            ),
            fix=f"compute the damaged tensors again with {resume_command}",
        )


def _check_repo(store: Store, files: Sequence[str]) -> None:
    """Refuse a repo that contains the weights of another model, or the mirror of a run.

    transformers might load the other weights in place of the model's. Other machines may resume a
    run from its mirror.
    """
    listed_sizes = retry_store(store, store.list, "repo")
    if any(name.startswith(f"{METADATA}/") for name in listed_sizes):
        raise refuse(
            "The repo is the mirror of a run",
            where=store.url,
            found=f"files in {METADATA}/",
            fix=f"look at it with `resumerge status {store.url}`, or name another repo",
        )
    if other_weights := sorted((_LOADED & listed_sizes.keys()) - set(files)):
        raise refuse(
            "The repo contains another model",
            where=store.url,
            expected="no weights other than those of this model",
            found=", ".join(other_weights),
            fix="name another repo, or delete these files there",
        )
