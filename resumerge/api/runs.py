"""Functions about runs and finished models: `status`, `verify`, `try_model`, `push`, `clean`."""

from __future__ import annotations

from typing import Any, Unpack

from resumerge.api.calls import address_of, runs_of, speaks_python, text_of
from resumerge.documents.status import status_json
from resumerge.documents.trial import TOKENS
from resumerge.documents.trial import try_model as load_and_try
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
    """Return the document of ``resumerge status --json``: one run, or all of them, newest first.

    Args:
        run: the run's id, output or mirror; by default all runs.
        state_dir: the folder of the ledgers; by default ./state, or RESUMERGE_STATE_DIR.
        tensors: whether the accounts list every tensor.

    Raises:
        InputError: there is no such run.
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
        sources: whether a sample of blocks is computed again from the models, and compared.
        all: whether `sources` compares every block.

    Raises:
        InputError: there is no such run; `all` without `sources`; with `sources`: its models, its
            recipe or the program are not what they were.
        Resumable: the mirror, the output or a model cannot be read now.
    """
    name, chosen = address_of(run), Options.read("verify", options)
    runs = runs_of(chosen.state_dir)
    if all and not sources:
        raise refuse("all says how much sources compares", fix="give both, or neither")
    if sources:
        return DisplayedVerification.of(verify_sources(name, chosen, Reporter(), every=all))
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
    """Load a finished model on the CPU by transformers, and have it continue a prompt.

    Nothing is written, and nothing is downloaded.

    Args:
        out: the folder of the model.
        prompt: a text that the model is to continue; the most likely token is taken each time.
        text: a file; the result says how well the model and its sources predict its beginning.
        tokens: the most tokens to generate.
        state_dir: the folder of the ledgers, one of which has the sources; by default ./state, or
            RESUMERGE_STATE_DIR.

    Returns:
        the document of ``try --json``: ``sound``, ``finite``, ``missing``, ``text``, ``fits`` …

    Raises:
        InputError: transformers is not installed, it cannot load or compute the model, the model is
            not finished, or the text cannot be read.
        Resumable: the memory is too small now.
    """
    file = None if text is None else local_path(text, "text")
    model = local_path(out, "model")
    asked = text_of(prompt, "prompt")
    return load_and_try(model, asked, runs_of(state_dir), file, tokens).as_json()


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
    """Upload a finished model to the Hub; files that the repo already has are not sent.

    Args:
        out: the folder of the model, or its only file.
        repo: ``org/name``; it is created if it does not exist.
        private: whether a repo that is created is private.
        branch: the branch to upload to, which is created if it is new; by default main.
        message: the message of the commit; by default it names the files.
        state_dir: the folder of the ledgers; by default ./state, or RESUMERGE_STATE_DIR.

    Returns:
        The document of ``resumerge push --json``.

    Raises:
        InputError: the model is not finished or is damaged, or the repo cannot accept it.
        Resumable: the repo cannot be reached; call it again.
    """
    folder, to = local_path(out, "model"), text_of(repo, "repo")
    with UploadProgress(err) as progress:
        pushed = upload(
            folder,
            to,
            runs_of(state_dir),
            progress.begins,
            progress.moved,
            commits_of(private, branch, message),
        )
    return pushed.as_json()


@speaks_python
def clean(
    *runs: StrPath,
    done: bool = False,
    older: str | None = None,
    state_dir: StrPath | None = None,
) -> list[dict[str, Any]]:
    """Remove the ledgers of old runs and the files of unfinished ones; finished models stay.

    This does not ask for confirmation. Runs in progress stay.

    Args:
        runs: ids or outputs; by default all finished runs, or with `older` all runs.
        done: only finished runs.
        older: only runs that wrote nothing for this long, like ``30d`` or ``12h``.
        state_dir: the folder of the ledgers; by default ./state, or RESUMERGE_STATE_DIR.

    Returns:
        What was removed, as in ``resumerge clean --json``.

    Raises:
        InputError: there is no such run, or `older` is not an age.
    """
    names = [name for run in runs if (name := address_of(run))]
    try:
        seconds = None if older is None else parse_age(text_of(older, "older"))
    except ValueError as error:
        raise refuse("An argument is invalid", found=str(error)) from None
    found = old_runs(runs_of(state_dir), names, done=done, older=seconds)
    for run in found:
        remove_run(run, Storage())
    return [run.as_json() for run in found]
