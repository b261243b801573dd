"""Functions about runs and finished models: `status`, `verify`, `try_model`, `push`, `clean`."""

from __future__ import annotations

from typing import Any, Unpack

from resumerge.api.calls import address_of, runs_of, speaks_python, text_of
from resumerge.documents.status import status_json
from resumerge.documents.try_model import TOKENS
from resumerge.documents.try_model import try_model as load_and_try
from resumerge.engine.lifecycle.old_runs import old_runs, remove_run
from resumerge.engine.lifecycle.recomputation import verify_sources
from resumerge.engine.push import commits_of
from resumerge.engine.push import push as upload
from resumerge.engine.recovery.verify import verify_mirror, verify_run
from resumerge.engine.reporter import Reporter
from resumerge.errors import refuse
from resumerge.local_path import local_path
from resumerge.mirror.stores.registry import is_mirror_url
from resumerge.options import Options
from resumerge.options.call_options import VerifyOptions
from resumerge.options.signature import with_options
from resumerge.options.types import StrPath, parse_age
from resumerge.storage import Storage
from resumerge.ui.notebook.results import DisplayedStatus, DisplayedVerification
from resumerge.ui.progress.upload import UploadProgress
from resumerge.ui.terminal.terminal import err


@speaks_python
def status(
    run: StrPath | None = None, *, state_dir: StrPath | None = None, tensors: bool = False
) -> DisplayedStatus:
    """Return the document of ``resumerge status --json``.

    Runs and searches are listed newest first.

    Args:
        run: the id or output of a run or a search, or the mirror of a run; by default all runs and
            searches.
        state_dir: the folder of the ledgers; by default RESUMERGE_STATE_DIR, else ``./state``.
        tensors: whether the accounts list every tensor.

    Raises:
        InputError: there is no such run or search.
        Resumable: the mirror or the search cannot be read now.
    """
    return DisplayedStatus(status_json(runs_of(state_dir), address_of(run), every_tensor=tensors))


@with_options("verify")
@speaks_python
def verify(
    run: StrPath | None = None,
    *,
    sources: bool = False,
    all: bool = False,
    **options: Unpack[VerifyOptions],
) -> DisplayedVerification:
    """Compare an output, or the files in a mirror, with the checksums in the ledger.

    Args:
        run: the run's id, output or mirror; by default the newest run.
        OPTIONS
        sources: whether a sample of blocks is also computed again from the models, and compared.
        all: whether every block is computed again, not a sample. Requires `sources`.

    Returns:
        The counts of compared units and bytes, and the damage of each unit or file. `intact` is
        true if there is no damage.

    Raises:
        InputError: there is no such run, or `all` is set without `sources`. With `sources`, also if
            the models, the recipe or the program have changed since the run.
        Interrupted: a signal stopped the computation of blocks.
        Resumable: the mirror, the output or a model cannot be read now.
    """
    name, read_options = address_of(run), Options.read("verify", options)
    runs = runs_of(read_options.state_dir)
    if all and not sources:
        raise refuse("all says how much sources compares", fix="give both, or neither")
    if sources:
        return DisplayedVerification.of(verify_sources(name, read_options, Reporter(), every=all))
    if name is not None and is_mirror_url(name):
        return DisplayedVerification.of(verify_mirror(name, runs, Storage()))
    return DisplayedVerification.of(verify_run(runs.find(name), Storage()))


@speaks_python
def try_model(
    out: StrPath,
    prompt: str,
    *,
    text: StrPath | None = None,
    tokens: int = TOKENS,
    state_dir: StrPath | None = None,
) -> dict[str, Any]:
    """Load a finished model with transformers on the CPU, and let it continue a prompt.

    Nothing is written, and nothing is downloaded.

    Args:
        out: the folder of the model.
        prompt: the text to continue. Decoding is greedy.
        text: a text file. The result reports how well the model, and each of its sources, predicts
            the beginning of this text.
        tokens: the largest number of tokens to generate.
        state_dir: the folder of the ledgers; by default RESUMERGE_STATE_DIR, else ``./state``. The
            ledger of the model's run names the sources.

    Returns:
        The document of ``try --json``: ``sound``, ``finite``, ``missing``, ``text``, ``fits`` …

    Raises:
        InputError: transformers is not installed, or cannot load or compute the model; the model is
            not finished; or the text cannot be read.
        Resumable: the model does not fit into the memory that is free now.
    """
    file = None if text is None else local_path(text, "text")
    model = local_path(out, "model")
    checked_prompt = text_of(prompt, "prompt")
    return load_and_try(model, checked_prompt, runs_of(state_dir), file, tokens).as_json()


@speaks_python
def push(
    out: StrPath,
    repo: str,
    *,
    private: bool = True,
    branch: str | None = None,
    message: str | None = None,
    state_dir: StrPath | None = None,
) -> dict[str, Any]:
    """Upload a finished model to the Hub. Files that the repo already has are not sent.

    Args:
        out: the folder of the model, or its only file.
        repo: the repo ``org/name``, which is created if it does not exist.
        private: whether the repo is private, if it is created.
        branch: the branch to upload to, which is created if it does not exist; by default
            ``main``.
        message: the message of the commit; by default one that names some of the files.
        state_dir: the folder of the ledgers; by default RESUMERGE_STATE_DIR, else ``./state``.

    Returns:
        The document of ``resumerge push --json``.

    Raises:
        InputError: the model is not finished or is damaged, or the repo does not accept it.
        Resumable: the repo cannot be reached; the same call continues the upload.
    """
    folder, repo_name = local_path(out, "model"), text_of(repo, "repo")
    with UploadProgress(err) as progress:
        pushed_model = upload(
            folder,
            repo_name,
            runs_of(state_dir),
            progress.begins,
            progress.moved,
            commits_of(private, branch, message),
        )
    return pushed_model.as_json()


@speaks_python
def clean(
    *runs: StrPath,
    done: bool = False,
    older: str | None = None,
    state_dir: StrPath | None = None,
) -> list[dict[str, Any]]:
    """Remove the ledgers of old runs and the files of unfinished ones; finished models stay.

    There is no confirmation prompt. Runs in progress stay.

    Args:
        runs: ids or outputs of runs; by default all finished runs, or with `older`, all runs.
        done: whether only finished runs are removed.
        older: the least age of a run since its last write, like ``30d`` or ``12h``; younger runs
            stay.
        state_dir: the folder of the ledgers; by default RESUMERGE_STATE_DIR, else ``./state``.

    Returns:
        The removed runs, as in ``resumerge clean --json``.

    Raises:
        InputError: there is no such run, a process works on a named run, or `older` is not an age.
    """
    names = [name for run in runs if (name := address_of(run))]
    try:
        seconds = None if older is None else parse_age(text_of(older, "older"))
    except ValueError as error:
        raise refuse("An argument is invalid", found=str(error)) from None
    removed_runs = old_runs(runs_of(state_dir), names, done=done, older=seconds)
    for run in removed_runs:
        remove_run(run, Storage())
    return [run.as_json() for run in removed_runs]
