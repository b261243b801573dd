"""New recipes for ``resumerge init``, with the meaning and default of each parameter."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from resumerge.errors import InputError, refuse
from resumerge.methods import Parameter
from resumerge.planning.check_recipe import check_recipe, find_method
from resumerge.recipe.as_yaml import as_yaml
from resumerge.recipe.load import parse_recipe
from resumerge.sources.formats.registry import is_readable

WITHOUT_EXAMPLE = 1.0
"""The value for a parameter of a user's method that declares neither a default nor an example."""

COMMENTS_AT = 34
"""The column at which comments begin, unless the text before them is longer."""


def new_recipe(method: str, models: Sequence[str], base: str | None, dtype: str) -> str:
    """Return a recipe with comments, which `resumerge run` accepts without changes.

    Args:
        method: the merge method's name.
        models: the models, without the base model.
        base: the base model, if there is one.
        dtype: the dtype of the output, as recipes write it, like ``bfloat16``.

    Raises:
        InputError: there is no such method, or the method does not accept these models.
    """
    if isinstance(models, str):  # text is a sequence, of letters
        raise refuse("The models are not a list", expected="a list of names", found=repr(models))
    chosen_method = find_method(method)
    if chosen_method.base == "required" and base is None:
        raise refuse(
            f"{method} needs a base model",
            expected="--base MODEL",
            found="no base model",
            fix="name the model that the others were trained from",
        )
    model_parameters = [parameter for parameter in chosen_method.parameters if parameter.per_model]
    lines = [_commented(f"merge_method: {method}", chosen_method.summary)]
    if base is not None:
        lines.append(as_yaml({"base_model": base}).strip())
    lines.append("models:")
    for model in models:
        lines.append(f"  - {as_yaml({'model': model}).strip()}")
        lines += _parameters(model_parameters, "    ")
    lines += _parameters(
        [parameter for parameter in chosen_method.parameters if not parameter.per_model], ""
    )
    lines += [
        _commented(
            as_yaml({"dtype": dtype}).strip(), "of the output: bfloat16, float16 or float32"
        ),
        _commented("# tokenizer_source: union", "if the models' vocabularies differ"),
    ]
    return _checked("\n".join(lines) + "\n")


class Kind(StrEnum):
    """The kinds of recipes that `resumerge init` writes."""

    MERGE = "merge"
    LORA = "lora"
    MIXTURE = "mixture"
    STAGES = "stages"


def new_recipe_of(
    kind: Kind, method: str | None, models: Sequence[str], base: str | None, dtype: str
) -> str:
    """Return a recipe of a kind, with comments, which `resumerge run` accepts without changes.

    Args:
        kind: a merge of `models`; a model with the LoRA adapters `models`; a mixture with the
            experts `models`; or a merge in two stages.
        method: the merge method's name; None for the kind's default.
        models: the models, without the base model.
        base: the base model, if there is one.
        dtype: the dtype of the output, as recipes write it, like ``bfloat16``.

    Raises:
        InputError: there is no such method, or the kind does not accept these models.
    """
    if kind is Kind.MERGE:
        return new_recipe(method or "linear", models, base, dtype)
    if kind is Kind.STAGES:
        return _in_stages(method or "linear", models, base, dtype)
    if base is None:
        raise refuse(
            f"A recipe of the kind {kind.value} needs a base model",
            expected="--base MODEL",
            found="no base model",
            fix="name the model that the adapters are of"
            if kind is Kind.LORA
            else "name the model that gives attention, embeddings and tokenizer",
        )
    if kind is Kind.MIXTURE:
        return _checked(_mixture(models, base, dtype))
    adapted_models = [f"{base}+{adapter}" for adapter in models]
    if method is None:
        method = "passthrough" if len(adapted_models) == 1 else "task_arithmetic"
    takes_base = find_method(method).base == "required"
    return new_recipe(method, adapted_models, base if takes_base else None, dtype)


def _in_stages(method: str, models: Sequence[str], base: str | None, dtype: str) -> str:
    if len(models) < 3:
        raise refuse(
            "A merge in stages needs more models",
            expected="three or more: all but the last are merged first",
            found=f"{len(models)}",
            fix="name more models, or leave --kind out",
        )
    first_document = new_recipe(method, models[:-1], base, dtype)
    last_document = new_recipe(method, ["first", models[-1]], base, dtype)
    name = _commented("name: first", "the next document names the result by it")
    return _checked(f"{name}\n{first_document}---\n{last_document}")


def _mixture(models: Sequence[str], base: str, dtype: str) -> str:
    lines = [
        _commented(as_yaml({"base_model": base}).strip(), "gives all but the experts"),
        _commented("gate_mode: hidden", "of the prompts; or cheap_embed (quicker), random"),
        _commented("experts_per_token: 2", "that each token uses"),
        "experts:",
    ]
    for model in models:
        prompt_text = f"Write here what {model} is asked for"
        lines += [
            f"  - {as_yaml({'source_model': model}).strip()}",
            _commented("    positive_prompts:", "texts of the kind that this expert is for"),
            f"      - {json.dumps(prompt_text, ensure_ascii=False)}",
        ]
    lines.append(_commented(as_yaml({"dtype": dtype}).strip(), "of the output"))
    return "\n".join(lines) + "\n"


def _checked(text: str) -> str:
    """Check the text of a recipe, and return it.

    Raises:
        InputError: the recipe has problems.
    """
    if problems := check_recipe(parse_recipe(text, "the new recipe")):
        raise InputError(problems)
    return text


def check_is_new(file: Path) -> None:
    """Check, before a recipe is made, that it can be written to a file.

    Raises:
        InputError: the file exists, or its folder does not; or the name is that of a weight file,
            as after ``--models A B`` without a comma.
    """
    if is_readable(file.name):
        raise refuse(
            "This is the name of a weight file, not of a recipe",
            where=file,
            expected="the recipe to write, like merge.yaml",
            found=file.name,
            fix=f"separate models by commas: --models other.safetensors,{file}",
        )
    if os.path.lexists(file):
        raise _unwritable(file, os.strerror(errno.EEXIST))
    if not file.parent.is_dir():
        raise _unwritable(file, os.strerror(errno.ENOENT))


def write_recipe(file: Path, text: str) -> None:
    """Write a recipe to a new file. If writing fails, the new file is removed.

    Raises:
        InputError: the file exists, or cannot be written.
    """
    try:
        opened_file = file.open("x", encoding="utf-8")
    except OSError as error:
        raise _unwritable(file, error.strerror) from None
    try:
        with opened_file:
            opened_file.write(text)
    except OSError as error:
        file.unlink()
        raise _unwritable(file, error.strerror) from None


def _unwritable(file: Path, found: object) -> InputError:
    return refuse(
        "The recipe cannot be written",
        where=file,
        expected="a new file, in a folder that exists and that you can write to",
        found=found,
        fix="name another file, or remove this one",
    )


def _parameters(parameters: Sequence[Parameter], indent: str) -> list[str]:
    """Return the lines of the section ``parameters``.

    Parameters with a default are commented out. If all of them have a default, the line
    ``parameters:`` is commented out too.
    """
    if not parameters:
        return []
    lines = [
        _commented(f"{indent}  {_setting(parameter)}", parameter.meaning)
        if parameter.required
        else _commented(f"{indent}  # {_setting(parameter)}", parameter.meaning)
        for parameter in parameters
    ]
    is_empty = not any(parameter.required for parameter in parameters)
    return [f"{indent}{'# ' * is_empty}parameters:", *lines]


def _setting(parameter: Parameter) -> str:
    value = parameter.default
    if parameter.required:
        value = WITHOUT_EXAMPLE if parameter.example is None else parameter.example
    return as_yaml({parameter.name: value}).strip()


def _commented(line: str, comment: str) -> str:
    return f"{line.ljust(COMMENTS_AT)}  # {comment}"
