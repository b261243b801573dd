"""The commands as Python functions.

Example:
    >>> import resumerge
    >>> resumerge.run("configs/ties.yaml", "merged", memory="2GB")
    >>> resumerge.status("merged")["runs"][0]["state"]
    'done'

The options of `run`, `resume` and `plan` are declared in `resumerge.options`.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, Unpack

from resumerge.comparison import compare_models
from resumerge.documents.cache_check import CacheReport, check_cache, repair_cache
from resumerge.documents.explanation import explain as explained
from resumerge.documents.methods import methods_json
from resumerge.documents.new_recipe import Kind, new_recipe_of, write_recipe
from resumerge.documents.plan_report import describe_plan
from resumerge.documents.recipe_file import RecipeFile, recipe_in_python, recipe_of_command
from resumerge.documents.status import status_json
from resumerge.documents.trial import TOKENS
from resumerge.documents.trial import try_model as load_and_try
from resumerge.engine.checks.paths import STATE
from resumerge.engine.lifecycle.bucket_output import read_output, settled
from resumerge.engine.lifecycle.old_runs import old_runs, remove_run
from resumerge.engine.lifecycle.recomputation import verify_sources
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.push import commits_of
from resumerge.engine.push import push as upload
from resumerge.engine.recovery.verify import verify_mirror, verify_run
from resumerge.engine.reporter import Reporter
from resumerge.engine.reproduction.comparison import Reproduction
from resumerge.errors import Problem, ResumergeError, refuse
from resumerge.ledger.run_store import RunStore
from resumerge.local_path import OUTPUT, is_path, local_path
from resumerge.mirror.stores.registry import is_mirror_url
from resumerge.options import Options
from resumerge.options.hints import (
    CompareOptions,
    ExplainOptions,
    ExtractLoraOptions,
    ExtractOptions,
    ReproduceOptions,
    ResumeOptions,
    RunOptions,
    VerifyOptions,
)
from resumerge.options.in_python import error_in_python, in_python, problem_in_python
from resumerge.options.signature import with_options
from resumerge.options.types import StrPath, parse_age, read_address
from resumerge.recipe.as_yaml import adapter_extraction, extraction
from resumerge.storage import Storage
from resumerge.ui.notebook.in_process import keepalive_in_notebook, merge_in_process
from resumerge.ui.notebook.results import (
    DisplayedComparison,
    DisplayedExplanation,
    DisplayedPlan,
    DisplayedResult,
    DisplayedStatus,
    DisplayedVerification,
)
from resumerge.ui.progress.upload import UploadProgress
from resumerge.ui.terminal.plan import PLANNING
from resumerge.ui.terminal.terminal import err

# tqdm, which comes with huggingface_hub, asks every notebook for widgets that nothing here shows.
warnings.filterwarnings("ignore", message="IProgress not found")

Config: TypeAlias = StrPath | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A recipe: a YAML file, or what is in it."""

RECIPE, RUN = "recipe", "name of the run"

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def _speaks_python(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Return a function whose errors name its arguments, not the command line's options."""

    @wraps(function)
    def speaking(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        except ResumergeError as error:
            error_in_python(error)
            raise

    return speaking


@_speaks_python
def init(
    file: StrPath,
    *,
    models: Sequence[str],
    method: str | None = None,
    base: str | None = None,
    dtype: str = "bfloat16",
    kind: str = "merge",
) -> None:
    """Write a recipe with comments, which `run` takes.

    Args:
        file: a new YAML file.
        models: folders or Hub repos, without the base model; for the kind ``lora`` the adapters.
        method: the merge method; by default ``linear``, or ``passthrough`` for one adapter.
        base: the base model, if the method uses one.
        dtype: data type of the output, like ``float16``.
        kind: ``merge``, ``lora``, ``mixture`` or ``stages``.

    Raises:
        InputError: there is no such method, it does not take these models, or the file cannot be
            written.
    """
    if kind not in list(Kind):
        raise refuse("Unknown kind of recipe", expected=", ".join(Kind), found=repr(kind))
    text = new_recipe_of(Kind(kind), method, models, base, dtype)
    write_recipe(local_path(file, RECIPE), text)


@with_options("run")
@_speaks_python
def run(
    config: Config,
    out: StrPath,
    *,
    reporter: Reporter | None = None,
    progress: str = "auto",
    **options: Unpack[RunOptions],
) -> DisplayedResult:
    """Merge in this process, or continue the unfinished run of the same recipe in `out`.

    There is no supervisor: if this process is killed, nothing restarts it; call `resume`.

    Args:
        config: the recipe: a YAML file, or a mapping with its keys; a list of mappings for one of
            several documents.
        out: the folder to write the model to, or a place in a bucket (``s3://bucket/prefix``); for
            models that are single files, also a file ``NAME.safetensors``; or a file ``NAME.gguf``,
            a model for llama.cpp.
        OPTIONS
        reporter: an object that receives the progress; `progress` is then ignored.
        progress: ``auto`` shows a live view in a notebook, and nothing elsewhere; ``bar``,
            ``lines`` and ``json`` print what the command prints; ``none`` shows nothing.

    Raises:
        InputError: the recipe, a source, the output or an option is invalid; nothing was written.
        Resumable: the run stopped before its end: too little memory or disk, no network, …
        Interrupted: SIGINT, SIGTERM or SIGHUP stopped the run; finished work is committed.
        DoubtfulNumbers: with `strict`: the model is complete, and its numbers should worry.

        The messages of `Resumable` and `Interrupted` end with the call that resumes the run. The
        `exit_code` of each is that of the command.
    """
    folder, chosen = settled(read_output(out), Options.read("run", options))
    with _recipe_file(config) as recipe:
        return merge_in_process(
            chosen, lambda session: session.run(recipe.path, folder), reporter, progress
        )


@with_options("extract-expert")
@_speaks_python
def extract_expert(
    model: StrPath,
    number: int,
    out: StrPath,
    *,
    reporter: Reporter | None = None,
    progress: str = "auto",
    **options: Unpack[ExtractOptions],
) -> DisplayedResult:
    """Make a dense model from one expert of a mixture: the run of a recipe with `extract_expert`.

    Args:
        model: a folder or Hub repo: Mixtral, Qwen2-MoE, Qwen3-MoE, Granite-MoE, DeepSeek-MoE.
        number: of the expert, from 0.
        out: the folder to write the model to.
        OPTIONS
        reporter: as for `run`.
        progress: as for `run`.

    Raises:
        InputError: there is no such expert, or no dense architecture for the model.
        Resumable, Interrupted: as for `run`.
    """
    folder, chosen = settled(read_output(out), Options.read("extract-expert", options))
    with recipe_of_command(extraction(str(model), number), str(model)) as recipe:
        return merge_in_process(
            chosen, lambda session: session.run(recipe.path, folder), reporter, progress
        )


@with_options("extract-lora")
@_speaks_python
def extract_lora(
    model: StrPath,
    base_model: StrPath,
    out: StrPath,
    *,
    max_rank: int = 128,
    sv_epsilon: float = 0.0,
    distribute_scale: bool = True,
    embed_lora: bool = False,
    save_modules: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    skip_undecomposable: bool = False,
    reporter: Reporter | None = None,
    progress: str = "auto",
    **options: Unpack[ExtractLoraOptions],
) -> DisplayedResult:
    """Make a LoRA adapter of how a model differs from its base, for peft.

    Args:
        model: the model: a folder, a Hub repo, or with an adapter: ``model+adapter``.
        base_model: the model that it was trained from.
        out: the folder to write the adapter to.
        OPTIONS
        max_rank: the largest rank of a module.
        sv_epsilon: directions whose singular value is not larger are left out.
        distribute_scale: whether both matrices have the roots of the singular values.
        embed_lora: whether embeddings and heads are decomposed, rather than saved whole.
        save_modules: names, or their last words, of modules that are saved whole.
        include: regular expressions, one of which the name of a module must match.
        exclude: regular expressions that the name of a module must not match.
        skip_undecomposable: whether what is no matrix is left out, rather than saved whole.
        reporter: as for `run`.
        progress: as for `run`.

    Raises:
        InputError: the models do not fit each other, or are equal.
        Resumable, Interrupted: as for `run`.
    """
    folder, chosen = settled(read_output(out), Options.read("extract-lora", options))
    recipe = adapter_extraction(
        str(model),
        str(base_model),
        {
            "max_rank": max_rank,
            "sv_epsilon": sv_epsilon,
            "distribute_scale": distribute_scale,
            "embed_lora": embed_lora,
            "save_modules": tuple(save_modules),
            "include": tuple(include),
            "exclude": tuple(exclude),
            "skip_undecomposable": skip_undecomposable,
        },
    )
    with recipe_of_command(recipe, str(model)) as file:
        return merge_in_process(
            chosen, lambda session: session.run(file.path, folder), reporter, progress
        )


@with_options("resume")
@_speaks_python
def resume(
    run: StrPath | None = None,
    *,
    reporter: Reporter | None = None,
    progress: str = "auto",
    **options: Unpack[ResumeOptions],
) -> DisplayedResult:
    """Continue a run. Options that are not given keep the values that were given last.

    Args:
        run: the run's id, output or mirror; by default the newest run.
        OPTIONS
        reporter: as for `run`.
        progress: as for `run`.

    Raises:
        InputError, Resumable, Interrupted: as for `run`.
    """
    chosen, name = Options.read("resume", options), _address(run)
    return merge_in_process(chosen, lambda session: session.resume(name), reporter, progress)


@_speaks_python
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
    return DisplayedStatus(status_json(_runs(state_dir), _address(run), every_tensor=tensors))


@with_options("plan")
@_speaks_python
def plan(
    config: Config,
    out: StrPath | None = None,
    *,
    progress: str = "auto",
    tensors: bool = False,
    **options: Unpack[RunOptions],
) -> DisplayedPlan:
    """Return the document of ``resumerge plan --json``, which lists the problems of a recipe.

    Only headers of the sources are read. Nothing is written, and the mirror is not contacted.

    Args:
        config: the recipe: a YAML file, or a mapping with its keys; a list of mappings for one of
            several documents.
        out: the folder, file or place in a bucket that the model would be written to.
        OPTIONS
        progress: ``auto`` prints a line every few seconds in a notebook, and nothing elsewhere;
            ``bar`` and ``lines`` print such lines everywhere; ``json`` and ``none`` do not.
        tensors: whether the accounts list every tensor.

    Raises:
        InputError: the value of an argument is invalid.
    """
    chosen, folder = Options.read("plan", options), None
    if out is not None:
        folder, chosen = settled(read_output(out), chosen)
    with _recipe_file(config) as recipe, keepalive_in_notebook(PLANNING, progress):
        document = describe_plan(recipe.path, folder, chosen, progress, every_tensor=tensors)
        problems = [recipe.said(Problem(**problem)) for problem in document["problems"]]
        document["problems"] = [asdict(problem_in_python(problem)) for problem in problems]
        document["notes"] = list(map(in_python, document.get("notes", ())))
        return DisplayedPlan(document)


@with_options("explain")
@_speaks_python
def explain(config: Config, **options: Unpack[ExplainOptions]) -> DisplayedExplanation:
    """Return what each parameter of a recipe comes to, layer by layer.

    Only headers of the sources are read. Nothing is written.

    Args:
        config: the recipe: a YAML file, or a mapping with its keys; a list of mappings for one of
            several documents.
        OPTIONS

    Returns:
        the document of ``explain --json``, which notebooks and consoles display.

    Raises:
        InputError: the recipe cannot be planned.
        Resumable: a model cannot be reached now.
    """
    chosen = Options.read("explain", options)
    with _recipe_file(config) as recipe, keepalive_in_notebook(PLANNING, "auto"):
        document = explained(recipe.path, chosen, Reporter())
        document["notes"] = list(map(in_python, document["notes"]))
        return DisplayedExplanation(document)


@with_options("verify")
@_speaks_python
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
    name, chosen = _address(run), Options.read("verify", options)
    runs = _runs(chosen.state_dir)
    if all and not sources:
        raise refuse("all says how much sources compares", fix="give both, or neither")
    if sources:
        return DisplayedVerification.of(verify_sources(name, chosen, Reporter(), every=all))
    if name is not None and is_mirror_url(name):
        return DisplayedVerification.of(verify_mirror(name, runs, Storage()))
    return DisplayedVerification.of(verify_run(runs.find(name), Storage()))


@with_options("compare")
@_speaks_python
def compare(
    *models: StrPath,
    base: StrPath | None = None,
    progress: str = "auto",
    **options: Unpack[CompareOptions],
) -> DisplayedComparison:
    """Compare models tensor by tensor: what is equal, what differs by how much, and in which way.

    A comparison that was stopped goes on where it was, if the same models are compared again.

    Args:
        models: references as in a recipe: folders, files, Hub repos, places in buckets, each with
            an adapter or without. The others are compared with the first.
        base: the model that they were made of; each is compared with it, too.
        OPTIONS
        progress: ``auto`` prints a line every few seconds in a notebook, and nothing elsewhere;
            ``bar`` and ``lines`` print such lines everywhere; ``json`` and ``none`` do not.

    Returns:
        the document of ``compare --json``, which notebooks and consoles display.

    Raises:
        InputError: a reference is no model, or a file cannot be read by ranges.
        Resumable: a model, or the state folder, cannot be used now.
        Interrupted: a signal stopped it; what was compared is kept.
    """
    chosen = Options.read("compare", options)
    with keepalive_in_notebook("comparing", progress):
        named = None if base is None else str(base)
        return DisplayedComparison(compare_models([*map(str, models)], named, chosen, Reporter()))


@with_options("reproduce")
@_speaks_python
def reproduce(
    original: StrPath,
    out: StrPath,
    *,
    reporter: Reporter | None = None,
    progress: str = "auto",
    **options: Unpack[ReproduceOptions],
) -> Reproduction:
    """Make a model again from its card, with its models as they were, and compare the two.

    Args:
        original: a model that resumerge has merged: its folder, the id of its run,
            ``org/name[@revision]``, or a place in a bucket.
        out: the folder to make it again in. An unfinished reproduction that is there goes on.
        OPTIONS
        reporter: as for `run`.
        progress: as for `run`.

    Returns:
        What was compared, and what differs.

    Raises:
        InputError: the original does not say what it was made of, a model is gone, or this machine
            computes otherwise; nothing was written.
        Resumable, Interrupted: as for `run`; the same call goes on.
    """
    named, folder = str(original), local_path(out, OUTPUT)
    chosen = Options.read("reproduce", options)
    merge_in_process(chosen, lambda session: session.reproduce(named, folder), reporter, progress)
    return Session(chosen).compare_with_original(named, folder)


@_speaks_python
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
    return load_and_try(model, prompt, _runs(state_dir), file, tokens).as_json()


@_speaks_python
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
    folder = local_path(out, "model")
    with UploadProgress(err) as progress:
        pushed = upload(
            folder,
            repo,
            _runs(state_dir),
            progress.begins,
            progress.moved,
            commits_of(private, branch, message),
        )
    return pushed.as_json()


@_speaks_python
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
    names = [name for run in runs if (name := _address(run))]
    try:
        seconds = None if older is None else parse_age(older)
    except ValueError as error:
        raise refuse("An argument is invalid", found=str(error)) from None
    found = old_runs(_runs(state_dir), names, done=done, older=seconds)
    for run in found:
        remove_run(run, Storage())
    return [run.as_json() for run in found]


@_speaks_python
def cache_check(
    target: StrPath, *, state_dir: StrPath | None = None, offline: bool = False
) -> CacheReport:
    """Read the cached files of a recipe or a Hub repo and compare them with their checksums.

    Args:
        target: a recipe, or ``org/name``.
        state_dir: the folder of the ledgers; by default ./state, or RESUMERGE_STATE_DIR.
        offline: do not use the network.

    Raises:
        InputError: there is no such recipe, or the cache has no file of the repo.
    """
    options = Options.read("cache check", {"state_dir": state_dir, "offline": offline})
    return check_cache(str(target), options)


@_speaks_python
def cache_repair(target: StrPath, *, state_dir: StrPath | None = None) -> CacheReport:
    """Check like `cache_check`, then download only the files that are damaged or missing.

    Args:
        target: a recipe, or ``org/name``.
        state_dir: the folder of the ledgers; by default ./state, or RESUMERGE_STATE_DIR.

    Raises:
        InputError, Resumable: as for `run`.
    """
    return repair_cache(str(target), Options.read("cache repair", {"state_dir": state_dir}))


@_speaks_python
def methods(name: str | None = None) -> dict[str, Any]:
    """Return the document of ``resumerge methods --json``: the merge methods and their parameters.

    Args:
        name: the only method to describe; by default all.

    Raises:
        InputError: there is no such method.
    """
    return methods_json(name)


def demo() -> bool:
    """Show a merge that is killed and resumed, with small models that it makes itself.

    Returns:
        Whether the resumed model is the same, byte for byte, as one that was not interrupted.
    """
    return subprocess.run([sys.executable, "-m", "resumerge", "demo"], check=False).returncode == 0


def _recipe_file(config: Config) -> AbstractContextManager[RecipeFile]:
    """Return the recipe as a file; one of mappings is there for the call only."""
    if isinstance(config, Mapping):
        return recipe_in_python(config)
    if isinstance(config, str) and "\n" in config:
        expected = "a path, or a mapping as yaml.safe_load makes it of a recipe's text"
        raise refuse("This is the text of a recipe", expected=expected, found=repr(config)[:60])
    if isinstance(config, str) or not isinstance(config, Sequence):
        return nullcontext(RecipeFile(local_path(config, RECIPE)))
    documents = [document for document in config if isinstance(document, Mapping)]
    if not documents or len(documents) < len(config):
        expected = "a path, a mapping, or a list of mappings, one for each document"
        raise refuse("This is not a recipe", expected=expected, found=repr(config)[:60])
    return recipe_in_python(documents)


def _runs(state_dir: StrPath | None) -> RunStore:
    return RunStore(None if state_dir is None else local_path(state_dir, STATE))


def _address(run: StrPath | None) -> str | None:
    if run is None:
        return None
    if not is_path(run):
        raise refuse(f"The {RUN} is not a path", expected="text, or a Path", found=repr(run))
    return read_address(run)
