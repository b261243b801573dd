"""Functions about recipes and methods: `init`, `plan`, `explain`, `methods`, `demo`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Unpack

from resumerge.api.calls import RECIPE, Config, model_of, recipe_file, speaks_python, text_of
from resumerge.documents.explanation import explain as explained
from resumerge.documents.methods import methods_json
from resumerge.documents.new_recipe import Kind, new_recipe_of, write_recipe
from resumerge.documents.plan_report import describe_plan
from resumerge.engine.lifecycle.bucket_output import read_output, working_folder_of
from resumerge.engine.reporter import Reporter
from resumerge.errors import Problem, refuse
from resumerge.local_path import local_path
from resumerge.options import Options
from resumerge.options.call_options import ExplainOptions, RunOptions
from resumerge.options.in_python import in_python, problem_in_python
from resumerge.options.signature import with_options
from resumerge.options.types import StrPath
from resumerge.ui.notebook.in_process import keepalive_in_notebook
from resumerge.ui.notebook.results import DisplayedExplanation, DisplayedPlan
from resumerge.ui.terminal.plan import PLANNING


@speaks_python
def init(
    file: StrPath,
    *,
    models: Sequence[StrPath],
    method: str | None = None,
    base: StrPath | None = None,
    dtype: str = "bfloat16",
    kind: str = "merge",
) -> None:
    """Write a new recipe with comments, which can be passed to `run` without changes.

    Args:
        file: the path of the YAML file to create.
        models: folders or Hub repos, without the base model. For the kind ``lora``, these are the
            adapters.
        method: the merge method; by default ``linear``, or ``passthrough`` for one adapter.
        base: the base model, if the method uses one.
        dtype: the data type of the output, like ``float16``.
        kind: ``merge``, ``lora``, ``mixture`` or ``stages``.

    Raises:
        InputError: there is no such kind or method, the method does not accept these models, or
            the file exists or cannot be written.
    """
    if kind not in list(Kind):
        raise refuse("Unknown kind of recipe", expected=", ".join(Kind), found=repr(kind))
    method_name = None if method is None else text_of(method, "method")
    if isinstance(models, str) or not isinstance(models, Sequence):
        expected = "a list of names, each a text or a Path"
        raise refuse("The models are not a list", expected=expected, found=repr(models))
    references = [model_of(model) for model in models]
    base_reference = None if base is None else model_of(base)
    text = new_recipe_of(
        Kind(kind), method_name, references, base_reference, text_of(dtype, "dtype")
    )
    write_recipe(local_path(file, RECIPE), text)


@with_options("plan")
@speaks_python
def plan(
    config: Config,
    out: StrPath | None = None,
    *,
    progress: str = "auto",
    tensors: bool = False,
    **options: Unpack[RunOptions],
) -> DisplayedPlan:
    """Plan a merge without starting it, and return the document of ``resumerge plan --json``.

    The problems of the recipe are listed in the document, not raised. Only the headers of the
    sources are read. Nothing is written, and the mirror is not contacted.

    Args:
        config: the recipe: the path of a YAML file, or its content as a mapping. A recipe of
            several documents is a list of mappings.
        out: the folder, file or place in a bucket that the model would be written to. Without it,
            only the disk of the working folder is checked.
        OPTIONS
        progress: ``auto`` prints a line every few seconds in a notebook, and nothing elsewhere;
            ``bar`` and ``lines`` print such lines everywhere; ``json`` and ``none`` do not.
        tensors: whether the accounts list every tensor.

    Raises:
        InputError: the value of an argument is invalid.
    """
    read_options, folder = Options.read("plan", options), None
    if out is not None:
        folder, read_options = working_folder_of(read_output(out), read_options)
    with recipe_file(config) as recipe, keepalive_in_notebook(PLANNING, progress):
        document = describe_plan(recipe.path, folder, read_options, progress, every_tensor=tensors)
        problems = [recipe.placed(Problem(**problem)) for problem in document["problems"]]
        document["problems"] = [asdict(problem_in_python(problem)) for problem in problems]
        document["notes"] = list(map(in_python, document["notes"]))
        return DisplayedPlan(document)


@with_options("explain")
@speaks_python
def explain(config: Config, **options: Unpack[ExplainOptions]) -> DisplayedExplanation:
    """Return the value of each parameter of a recipe, layer by layer.

    Only the headers of the sources are read. Nothing is written.

    Args:
        config: the recipe: the path of a YAML file, or its content as a mapping. A recipe of
            several documents is a list of mappings.
        OPTIONS

    Returns:
        The document of ``explain --json``, which notebooks and consoles display.

    Raises:
        InputError: the recipe cannot be planned.
        Resumable: a model cannot be reached now.
    """
    read_options = Options.read("explain", options)
    with recipe_file(config) as recipe, keepalive_in_notebook(PLANNING, "auto"):
        document = explained(recipe.path, read_options, Reporter())
        document["notes"] = list(map(in_python, document["notes"]))
        return DisplayedExplanation(document)


@speaks_python
def methods(name: str | None = None) -> dict[str, Any]:
    """Return the document of ``resumerge methods --json``: the merge methods and their parameters.

    Args:
        name: the name of the only method to describe; None for all methods.

    Raises:
        InputError: there is no such method.
    """
    return methods_json(None if name is None else text_of(name, "name"))


def demo() -> bool:
    """Run the demonstration: merge small generated models, kill the merge, and resume it.

    Returns:
        Whether the resumed model has the same bytes as the model of an uninterrupted merge.
    """
    return subprocess.run([sys.executable, "-m", "resumerge", "demo"], check=False).returncode == 0
