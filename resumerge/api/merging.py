"""Functions that merge: `run`, `resume`, `extract_expert`, `extract_lora`, `reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from resumerge.api.calls import Config, address_of, model_of, recipe_file, speaks_python, texts_of
from resumerge.documents.recipe_file import recipe_of_command
from resumerge.engine.lifecycle.bucket_output import read_output, working_folder_of
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter
from resumerge.engine.reproduction.comparison import Reproduction
from resumerge.errors import refuse
from resumerge.ledger.run_store import RunStore
from resumerge.local_path import OUTPUT, local_path
from resumerge.optimisation.state import find_search
from resumerge.options import Options
from resumerge.options.call_options import (
    ExtractLoraOptions,
    ExtractOptions,
    ReproduceOptions,
    ResumeOptions,
    RunOptions,
)
from resumerge.options.signature import with_options
from resumerge.options.types import StrPath
from resumerge.recipe.as_yaml import adapter_extraction, extraction
from resumerge.recipe.types import Extraction
from resumerge.ui.notebook.in_process import merge_in_process
from resumerge.ui.notebook.results import DisplayedResult


@with_options("run")
@speaks_python
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
        reporter: a `resumerge.engine.reporter.Reporter`, whose methods receive the progress;
            `progress` is then ignored.
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
    folder, chosen = working_folder_of(read_output(out), Options.read("run", options))
    with recipe_file(config) as recipe:
        return merge_in_process(
            chosen, lambda session: session.run(recipe.path, folder), reporter, progress
        )


@with_options("resume")
@speaks_python
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
    chosen, name = Options.read("resume", options), address_of(run)
    if (search := find_search(RunStore(chosen.state_dir), name)) is not None:
        raise refuse(
            "This is a search, which has a document and no result",
            where=str(search),
            fix="call resumerge.search again, with what it began with: it goes on where it was",
        )
    return merge_in_process(chosen, lambda session: session.resume(name), reporter, progress)


@with_options("extract-expert")
@speaks_python
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
    folder, chosen = working_folder_of(read_output(out), Options.read("extract-expert", options))
    with recipe_of_command(extraction(model_of(model), number), str(model)) as recipe:
        return merge_in_process(
            chosen, lambda session: session.run(recipe.path, folder), reporter, progress
        )


@with_options("extract-lora")
@speaks_python
def extract_lora(
    model: StrPath,
    base_model: StrPath,
    out: StrPath,
    *,
    max_rank: int = Extraction.max_rank,
    sv_epsilon: float = Extraction.sv_epsilon,
    energy: float | None = Extraction.energy,
    distribute_scale: bool = Extraction.distribute_scale,
    embed_lora: bool = Extraction.embed_lora,
    save_modules: str | Sequence[str] = (),
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    skip_undecomposable: bool = Extraction.skip_undecomposable,
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
        energy: the share of the energy of each change that is kept, if the largest rank allows it.
        distribute_scale: whether both matrices have the roots of the singular values.
        embed_lora: whether embeddings and heads are decomposed, rather than saved whole.
        save_modules: names, or their last words, of modules that are saved whole; a text is one.
        include: regular expressions, one of which the name of a module must match; a text is one.
        exclude: regular expressions that the name of a module must not match; a text is one.
        skip_undecomposable: whether what is no matrix is left out, rather than saved whole.
        reporter: as for `run`.
        progress: as for `run`.

    Raises:
        InputError: the models do not fit each other, or are equal.
        Resumable, Interrupted: as for `run`.
    """
    folder, chosen = working_folder_of(read_output(out), Options.read("extract-lora", options))
    recipe = adapter_extraction(
        model_of(model),
        model_of(base_model),
        {
            "max_rank": max_rank,
            "sv_epsilon": sv_epsilon,
            "energy": energy,
            "distribute_scale": distribute_scale,
            "embed_lora": embed_lora,
            "save_modules": texts_of(save_modules, "save_modules"),
            "include": texts_of(include, "include"),
            "exclude": texts_of(exclude, "exclude"),
            "skip_undecomposable": skip_undecomposable,
        },
    )
    with recipe_of_command(recipe, str(model)) as file:
        return merge_in_process(
            chosen, lambda session: session.run(file.path, folder), reporter, progress
        )


@with_options("reproduce")
@speaks_python
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
