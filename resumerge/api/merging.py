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

    No supervisor restarts this process if it is killed; call `resume` to continue the run.

    Args:
        config: the recipe: the path of a YAML file, or its content as a mapping. A recipe of
            several documents is a list of mappings.
        out: the folder to write the model to, or a place in a bucket (``s3://bucket/prefix``). A
            file ``NAME.gguf`` receives a model for llama.cpp. A file ``NAME.safetensors`` is
            accepted if the input models are single files.
        OPTIONS
        reporter: a `resumerge.engine.reporter.Reporter`, whose methods receive the progress. If
            it is given, `progress` is ignored.
        progress: ``auto`` shows a live view in a notebook, and nothing elsewhere; ``bar``,
            ``lines`` and ``json`` print progress as the command does; ``none`` shows nothing.

    Returns:
        The result, with the path of the output, the run's id, notes and measurements. Notebooks and
        consoles display it as the status of the run.

    Raises:
        InputError: the recipe, a source, the output or an option is invalid; nothing was written.
        Resumable: the run stopped before its end; for example, memory or disk space ran out, or
            the network failed.
        Interrupted: SIGINT, SIGTERM or SIGHUP stopped the run; finished work is committed.
        DoubtfulNumbers: `strict` was given, and there are warnings about the model's numbers. The
            model is complete.

        The messages of `Resumable` and `Interrupted` end with the call that resumes the run. The
        `exit_code` of each error is the exit code of the command.
    """
    folder, read_options = working_folder_of(read_output(out), Options.read("run", options))
    with recipe_file(config) as recipe:
        return merge_in_process(
            read_options, lambda session: session.run(recipe.path, folder), reporter, progress
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
    """Continue a run with the options that its ledger keeps.

    An option that is given replaces the kept value. Options that depend on the machine or the
    moment, like `offline` and `device`, are not kept and have to be given again.

    Args:
        run: the run's id, output or mirror; by default the newest run.
        OPTIONS
        reporter: as for `run`.
        progress: as for `run`.

    Returns:
        The result, as for `run`.

    Raises:
        InputError: as for `run`; or there is no such run, or `run` names a search.
        Resumable, Interrupted, DoubtfulNumbers: as for `run`.
    """
    read_options, name = Options.read("resume", options), address_of(run)
    if (search_folder := find_search(RunStore(read_options.state_dir), name)) is not None:
        raise refuse(
            "This is a search, which has a document and no result",
            where=str(search_folder),
            fix="call resumerge.search again, with what it began with: it goes on where it was",
        )
    return merge_in_process(read_options, lambda session: session.resume(name), reporter, progress)


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
        number: the number of the expert, counted from 0.
        out: the folder to write the model to.
        OPTIONS
        reporter: as for `run`.
        progress: as for `run`.

    Returns:
        The result, as for `run`.

    Raises:
        InputError: the model has no such expert, or no dense architecture exists for the model.
        Resumable, Interrupted: as for `run`.
    """
    folder, read_options = working_folder_of(
        read_output(out), Options.read("extract-expert", options)
    )
    with recipe_of_command(extraction(model_of(model), number), str(model)) as recipe:
        return merge_in_process(
            read_options, lambda session: session.run(recipe.path, folder), reporter, progress
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
    """Extract the difference between a model and its base as a LoRA adapter for PEFT.

    Args:
        model: the fine-tuned model: a folder, a Hub repo, or a model with an adapter
            (``model+adapter``).
        base_model: the model that `model` was trained from.
        out: the folder to write the adapter to.
        OPTIONS
        max_rank: the largest rank of a module.
        sv_epsilon: the threshold of singular values: a direction is left out if its singular value
            is not larger.
        energy: the share of each change's energy (sum of squares) to keep, as far as `max_rank`
            allows.
        distribute_scale: whether each of the two matrices is scaled by the square roots of the
            singular values.
        embed_lora: whether embeddings and heads are decomposed, rather than saved whole.
        save_modules: a name, or a list of names, of modules that are saved whole. The last word of
            a name is enough.
        include: a regular expression, or a list of them, one of which a module's name must match.
        exclude: a regular expression, or a list of them, that a module's name must not match.
        skip_undecomposable: whether parameters that cannot be decomposed are left out, rather than
            saved whole.
        reporter: as for `run`.
        progress: as for `run`.

    Returns:
        The result, as for `run`.

    Raises:
        InputError: the models do not fit each other, or the adapter would be empty.
        Resumable, Interrupted: as for `run`.
    """
    folder, read_options = working_folder_of(
        read_output(out), Options.read("extract-lora", options)
    )
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
            read_options, lambda session: session.run(file.path, folder), reporter, progress
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
    """Repeat a merge from its model card, with the same source versions, and compare the models.

    Args:
        original: a model that resumerge has merged: its folder, the id of its run,
            ``org/name[@revision]``, or a place in a bucket.
        out: the folder to write the new model to. If it contains an unfinished reproduction, that
            run continues.
        OPTIONS
        reporter: as for `run`.
        progress: as for `run`.

    Returns:
        The counts of compared tensors, bytes and files, and the differences. `identical` is true if
        nothing differs.

    Raises:
        InputError: the card of the original does not name its sources, a source no longer exists,
            or this machine computes different bits. Nothing was written.
        Resumable, Interrupted: as for `run`; the same call continues the run.
    """
    original_name, folder = str(original), local_path(out, OUTPUT)
    read_options = Options.read("reproduce", options)
    merge_in_process(
        read_options, lambda session: session.reproduce(original_name, folder), reporter, progress
    )
    return Session(read_options).compare_with_original(original_name, folder)
